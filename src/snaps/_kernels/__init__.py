"""The numba loops. They know arrays, nothing of the API above them, and no thread changes a result.

Imported where used: numba takes longer to import than the rest of the library together.
"""
