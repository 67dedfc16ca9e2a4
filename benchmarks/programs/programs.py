"""The training programs that are predicted, by name, commit and line: those of the folder lists."""

from __future__ import annotations

from lists import fields, generative, kinds, language, newer, others, own, pictures, rarer, recent
from lists.listed import OWN, Listed

__all__ = ["OWN", "PROGRAMS", "Listed"]

TABLES = (language, pictures, generative, others, kinds, fields, newer, rarer, recent, own)
PROGRAMS = [program for table in TABLES for program in table.PROGRAMS]
