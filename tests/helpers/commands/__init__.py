"""The command line of tilewright as users type it, and as documents show it."""
