"""What the API answers, as pydantic models: one description for clients, the server and its documentation.

Everything that a client reads is checked, because an answer may come from any server: numbers are not read
from strings. Fields and values of later versions are accepted.
"""
