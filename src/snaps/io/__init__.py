"""Files: written whole or not at all, and read without trust. The only user of pyarrow."""
