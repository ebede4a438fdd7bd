"""The database of measurements: SQLite in WAL mode, one file, safe against kill -9, or a store of
another kind.

`open_store` is the way in; SQLAlchemy is imported when it is called, not before.
"""

from tilewright.store.registry import open_for_reading, open_store

__all__ = ["open_for_reading", "open_store"]
