"""Its bindings."""
