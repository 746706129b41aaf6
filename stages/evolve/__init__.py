"""The search's decisions as plain functions of what has been tried: no terminal, no database, no clock."""
