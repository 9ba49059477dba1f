"""The names of this machine's users."""

import pwd


def user_name(uid: int) -> str:
    """Return the name of a user; "user UID" if it has none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
