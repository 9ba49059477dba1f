"""Hides what gives access in the address of a file: a user's password, a signed query."""

HIDDEN = "***"
# Of the name of a parameter. One that signs makes the others (when until, for whom) of no use.
_TELLING = (
    "sig", "token", "key", "secret", "pass", "pw", "cred", "auth", "accessid", "jwt", "hmac",
    "policy", "x-amz-", "x-goog-", "session", "sas",
)  # fmt: skip
_LONG = 32  # characters of a value that nobody typed


def without_secrets(address: str) -> str:
    """The address of a file or a page with `***` for its password, and for a query that signs."""
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
    """What stands behind `scheme://`."""
    host, slash, path = rest.partition("/")
    user, colon, port = host.partition(":")
    if "@" not in host and (not colon or port.isdigit()):
        return rest  # the address of a server, and a path that has an "@"
    if colon and "@" not in user:
        # The password may hold slashes and more of these itself.
        return f"{user}:{HIDDEN}@{rest.rpartition('@')[2]}"
    user, _, host = host.rpartition("@")
    # A lone name is no secret, a token in its place is.
    return f"{HIDDEN if len(user) >= 20 else user}@{host}{slash}{path}"
