"""What several tests need: each folder holds what its name says, and no tests."""
