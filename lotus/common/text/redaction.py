"""Hides secrets in a command line or an environment before it is kept, by how they look.

A word that is hidden by mistake costs a reader little; a key that is kept is lost. What a value
is called decides (``--token X``, ``password=X``, ``API_KEY=X``), or its shape (``hf_...``,
``ghp_...``, ``https://user:word@host``). What follows ``-p`` is a password unless it is a number,
as of a port, or a path, or one of the programs was named before whose ``-p`` is something else.

All of it may be done again to what it gave.
"""

import re
from collections.abc import Mapping, Sequence

from lotus.inside.common import urls

HIDDEN = urls.HIDDEN
_MOST = 10_000  # characters of a word that are kept: a script given by -c may be long
_SAID = 40  # characters by which it is said that they are not all

# The last word of a name that holds a secret ("HF_TOKEN", "--db-password", "wandbApiKey") ...
_SECRET_WORDS = frozenset(
    "token secret secrets password passwd passphrase passcode pwd pass apikey credential "
    "credentials auth authtoken authorization bearer cookie signature sig sas pat pw psw jwt "
    "hmac".split()
)
# ... or the word before "key".
_KEY_KINDS = frozenset(
    "api access secret private session auth account encryption decryption ssh signing master "
    "license licence wandb comet neptune openai storage shared hf deploy client service".split()
)
# Words that may follow and change nothing: AWS_ACCESS_KEY_ID, token_value.
_FILLERS = frozenset("id value string str text hash b64 base64 raw".split())

# Before a word of its own that is the secret: `Authorization: Bearer X`, `Bearer X`.
_SCHEMES = frozenset("bearer basic token digest negotiate apikey".split())
_HEADER = re.compile(
    r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token)"
    r"(\s{0,9}[\"']?\s{0,9}:\s{0,9}[\"']?)([^\"'\r\n]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer\s{1,9})(?!\$)[\w\-.~+/=]{6,}")
# Flags of a user, whose password may follow in the same word.
_USERS = frozenset("login user username account u proxy-user http-user ftp-user".split())
_USER = re.compile(r"(?s)([^\s:/@]+):(?!//)(.+)")
_USER_AT = re.compile(r"(?<![\w@:/.+\-])([A-Za-z_][\w.+\-]{0,63}):([^\s@/\"']{1,200})@(?=[\w\[])")
_NUMBERS_OR_PATH = re.compile(r"(?s)[\d.:,\-]+(/(tcp|udp))?|(\.{0,2}|~)/.*")
# Programs whose -p is a port, a partition, a plugin, a directory; and those that take `-pSECRET`.
_OTHER_P = re.compile(
    r"(?:^|[\s/;&|(])(?:srun|sbatch|salloc|ssh|scp|sftp|mkdir|cp|install|docker|podman|nerdctl|"
    r"pytest|py\.test|tensorboard|uvicorn|flask|bsub|qsub|kill|git|ps|tar|nc)(?=$|\s)"
)
_JOINED_P = re.compile(r"(?:^|[\s/;&|(])(?:mysql\w*|mariadb\w*|sshpass)(?=$|\s)")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Names start where no other name continues, and lengths are bounded: no text takes quadratic time.
_NAME = r"(?<![\w.])[A-Za-z_][\w.\-]{0,200}"
_ASSIGNMENT = re.compile(rf"(?s)([-+~]*({_NAME})\s*=)(.+)")
_INNER = re.compile(
    rf"""({_NAME})(["']?\s*(?:=|:(?!//))\s*)((?:(?:Bearer|Basic|Token)\s+)?"""
    r"""(?:"[^"]*"|'[^']*'|\$\{\w+\}|[^\s"'&;,)}\]]+))"""
)
_INNER_FLAG = re.compile(rf"(?<![\w\-])(--?({_NAME})\s+)((?!-)(?:\"[^\"]*\"|'[^']*'|\S+))")
# A word after "user:" may hold "/" and "@" themselves.
_URL_USER = re.compile(
    r"\b([A-Za-z][\w+.\-]{0,30}://)((?:[^\s/:@\"']{0,200}:[^\s\"']{0,400})|[^\s/:?#\"']{0,200})@"
)
_LONG = re.compile(r"[A-Za-z0-9+/_\-=.]{20,}")
_SHAPES = re.compile(
    r"""
    \bhf_(?:(?=[a-z]*[0-9A-Z])[A-Za-z0-9]{8,}|[a-z]{16,})
  | \bgh[oprsu]_(?:(?=[a-z]*[0-9A-Z])[A-Za-z0-9]{8,}|[a-z]{16,})
  | \bgithub_pat_\w{16,}
  | \bgl(?:pat|dt|rt)-[\w\-]{16,}
  | \b(?:sk|pk|rk)-[A-Za-z0-9_\-]{20,}
  | \b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}
  | \bxox[abeprs]-[\w\-]{10,}
  | \b(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{12,}
  | \bAIza[\w\-]{30,}
  | \bya29\.[\w\-]{20,}
  | \b(?:npm|dop_v1|dapi)_?[A-Za-z0-9]{32,}
  | \bpypi-[\w\-]{20,}
  | \beyJ[\w\-]{8,4000}\.[\w\-]{8,}(?:\.[\w\-]*)?
  | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)


def command(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, each secret in them replaced by ``***``."""
    shown: list[str] = []
    secret_next = user_next = False
    before = ""  # the word before
    # The place of this word, and those of programs whose -p is something else, or takes a word.
    place, other_at, joined_at = 0, -_MOST - 1, -_MOST - 1
    for word in words:
        # A flag without its value (`--use-auth-token --epochs 3`) hides no other flag.
        if secret_next and not word.startswith("--"):
            shown.append(HIDDEN)
            # Bearer: the secret follows it.
            secret_next = word.lower() in _SCHEMES
            continue
        if user_next and (user := _USER.fullmatch(word)):
            shown.append(_hide_password(user))
        elif before.endswith("-p") and place - other_at > _MOST and _may_be_secret_of_p(word):
            shown.append(HIDDEN)
        elif word.startswith("-p") and len(word) > 2 and place - joined_at <= _MOST:
            shown.append(f"-p{HIDDEN}")
        else:
            shown.append(text(word))
        flag = re.fullmatch(rf"-+({_NAME})", word)
        name = word.rstrip(":")
        secret_next = bool(flag and is_secret_name(word)) or (
            word.lower() == "bearer"
            or (word != name and bool(re.fullmatch(_NAME, name)) and is_secret_name(name))
        )
        user_next = bool(flag and flag[1].lower() in _USERS)
        before = word[:_MOST]
        place += len(before) + 1
        other_at = place if _OTHER_P.search(before) else other_at
        joined_at = place if _JOINED_P.search(before) else joined_at
    return shown


def environment(values: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the values of secret ones replaced by ``***``."""
    return {name: value(name, content) for name, content in values.items()}


def value(name: str, content: str) -> str:
    """Return what may be kept of a value of this name."""
    return HIDDEN if _names_secret(name, content) else text(content)


def text(content: str) -> str:
    """Return a text with the secrets in it replaced by ``***``."""
    if len(content) > _MOST + _SAID:
        content = f"{content[:_MOST]}... ({len(content)} characters)"
    whole = _ASSIGNMENT.fullmatch(content)
    if whole and _names_secret(whole[2], whole[3]):
        return whole[1] + HIDDEN
    if whole and whole[2].lower() in _USERS and (user := _USER.fullmatch(whole[3])):
        return whole[1] + _hide_password(user)
    content = _SHAPES.sub(HIDDEN, content)
    content = _URL_USER.sub(_hide_user, content)
    content = "".join(urls.without_secrets(part) for part in re.split(r"([\s\"'<>]+)", content))
    content = _HEADER.sub(lambda m: m[1] + m[2] + HIDDEN, content)
    content = _BEARER.sub(lambda m: m[1] + HIDDEN, content)
    content = _USER_AT.sub(lambda m: f"{m[1]}:{HIDDEN}@", content)
    content = _INNER.sub(lambda m: m[1] + m[2] + _hide(m[1], m[3]), content)
    other = _OTHER_P.search(content)
    return _INNER_FLAG.sub(lambda m: m[1] + _hide_of_flag(m, other), content)


def is_secret_name(name: str) -> bool:
    """Return True if a flag, key or variable of this name holds a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    while words and (words[-1] in _FILLERS or words[-1].isdigit()):
        words.pop()
    if not words:
        return False
    if words[-1] in ("key", "keys"):
        return len(words) > 1 and words[-2] in _KEY_KINDS
    return words[-1] in _SECRET_WORDS


def _names_secret(name: str, content: str) -> bool:
    if re.fullmatch(
        r"([A-Z][A-Z0-9]*_)*KEYS?", name
    ):  # of an environment, where no keys are sorted
        return True
    return is_secret_name(name) or bool(_has_key_word(name) and _LONG.fullmatch(content))


def _may_be_secret_of_p(word: str) -> bool:
    """Return True if what follows `-p` may be a password."""
    return not word.startswith("-") and not _NUMBERS_OR_PATH.fullmatch(word)


def _hide_of_flag(match: re.Match[str], other: re.Match[str] | None) -> str:
    """Return the value of a flag in a text, hidden; `other`: the first program with its own -p."""
    name, content = match[2], match[3]
    if name == "p" and not match[1].startswith("--"):
        named = other is not None and other.end() <= match.start()
        secret = _may_be_secret_of_p(content) and not named
        return HIDDEN if secret and not _is_reference(content) else content
    if name.lower() in _USERS and (user := _USER.fullmatch(content)):
        return _hide_password(user)
    return _hide(name, content)


def _hide_password(user: re.Match[str]) -> str:
    """Return `name:***`; numbers are those of a user and a group."""
    return user[0] if user[1].isdigit() and user[2].isdigit() else f"{user[1]}:{HIDDEN}"


def _has_key_word(name: str) -> bool:
    words = {word.lower() for word in _WORD.findall(name)}
    return bool(words & {"key", "keys", "tokens", "creds", *_SECRET_WORDS})


def _hide(name: str, content: str) -> str:
    bare = content.strip("\"'")
    if HIDDEN in content or _is_reference(bare):
        return content
    if _names_secret(name, bare):
        quote = content[0] if content[:1] in ("'", '"') else ""
        return f"{quote}{HIDDEN}{quote}"
    return content


def _is_reference(content: str) -> bool:
    """Return True if a value is a reference, not a secret itself (``$TOKEN``, ``None``)."""
    return content in ("", "None", "True", "False", "true", "false") or bool(
        re.fullmatch(r"\$\w+|\$\{\w+\}", content)
    )


def _hide_user(match: re.Match[str]) -> str:
    scheme, user = match[1], match[2]
    name, colon, _ = user.partition(":")
    if colon:
        return f"{scheme}{name}:{HIDDEN}@"
    # A lone user name is no secret, a token in its place is.
    return f"{scheme}{HIDDEN if len(user) >= 20 else user}@"
