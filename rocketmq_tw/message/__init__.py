"""Messages and stored records: properties, flags, ids, batches, filters."""
