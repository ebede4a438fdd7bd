"""Its options."""

freezing = False
