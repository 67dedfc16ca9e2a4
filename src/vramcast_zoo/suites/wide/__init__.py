"""Training steps from every corner of the field, most of them with the field's own libraries."""
