"""Every kind of record that vramcast writes and reads: data only, versioned, read strictly."""
