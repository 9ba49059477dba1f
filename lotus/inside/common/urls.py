"""Hides credentials in URLs: passwords and signed queries."""

HIDDEN = "***"
# Parts of the names of parameters that grant access.
_TELLING = (
    "sig", "token", "key", "secret", "pass", "pw", "cred", "auth", "accessid", "jwt", "hmac",
    "policy", "x-amz-", "x-goog-", "session", "sas",
)  # fmt: skip
_LONG = 32  # length of a value that is probably generated


def without_secrets(address: str) -> str:
    """Return a URL with `***` instead of its password and of a query that grants access."""
    if "?" not in address and "#" not in address and "@" not in address:
        return address
    at = min((place for place in map(address.find, "?#") if place >= 0), default=len(address))
    place, mark, query = address[:at], address[at : at + 1], address[at + 1 :]
    scheme, separator, rest = place.partition("://")
    if separator and "@" in rest:
        place = f"{scheme}://{_without_password(rest)}"
    if any(map(_tells, query.replace(";", "&").replace("?", "&").replace("#", "&").split("&"))):
        query = HIDDEN
    return place + mark + query


def _tells(parameter: str) -> bool:
    name, equals, value = parameter.partition("=")
    name = name.lower()
    return bool(equals) and (len(value) >= _LONG or any(word in name for word in _TELLING))


def _without_password(rest: str) -> str:
    """Hide the password in the part after `scheme://`."""
    host, slash, path = rest.partition("/")
    user, colon, port = host.partition(":")
    if "@" not in host and (not colon or port.isdigit()):
        return rest  # a host, and a path that contains "@"
    if colon and "@" not in user:
        # The password may itself contain "/" and "@".
        return f"{user}:{HIDDEN}@{rest.rpartition('@')[2]}"
    user, _, host = host.rpartition("@")
    # A user name alone is no secret, but it may be a token.
    return f"{HIDDEN if len(user) >= 20 else user}@{host}{slash}{path}"
