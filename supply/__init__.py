"""What we take from others: declared, pinned, hashed and licensed, as seen offline from the lock."""
