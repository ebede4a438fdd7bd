"""The compiler of the torch that is made up."""
