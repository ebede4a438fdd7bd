"""Building, checking and racing whole networks, and the artifact that ships."""
