"""Callbacks for trainers of other libraries. Each file needs its library, and nothing else does."""
