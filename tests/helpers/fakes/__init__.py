"""Made-up devices, measurers, stores and sessions: everything above the compiler runs on them."""
