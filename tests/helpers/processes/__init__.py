"""Other processes that tests start, each of which dies with its test."""
