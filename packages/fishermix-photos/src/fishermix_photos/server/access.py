"""Who may use the server: by default, this machine only. On a network, whoever has the token.

The token is part of a link that the terminal shows once. The link sets a cookie that scripts cannot read and
that a browser sends to this server only (`HttpOnly`, `SameSite=Strict`); its value is another secret, so that
the token is nowhere but in the link. Both have 256 random bits and are compared in constant time.
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Iterable
from typing import Literal

from starlette.datastructures import Headers

Rights = Literal["allowed", "after signing in", "never"]

FOLDERS_ABOVE = re.compile(r"(?<![\w/.:])(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")  # of a full path
PORT, LARGEST_PORT = re.compile(r"(?<=[^:]):\d{1,5}\Z", re.ASCII), 65535  # at the end of a `Host`
LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
COOKIE_DAYS = 30
SIGNED_IN = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url=/"><link rel="icon" href="/icon.svg">
<title>fishermix</title><p><a href="/">Open fishermix</a></p></html>"""
SIGN_IN = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>fishermix</title>
<p>Open the link, or scan the QR code, that <code>fishermix serve</code> shows in its terminal.</p></html>"""


class Access:
    """The rules for one server.

    local : whether only this machine can connect: then it may see full paths
    with_token : whether requests need the token; on a network they always do

    On this machine, whoever has opened the link with the token is the owner, who may also add folders.
    """

    def __init__(self, local: bool = True, with_token: bool = False):
        self.local = local
        self.is_closed = with_token or not local
        self.token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        name = socket.gethostname().lower()
        self._names = LOCAL_NAMES if local else LOCAL_NAMES | {name, f"{name.split('.')[0]}.local"}

    def show(self, message: str, places: Iterable[str]) -> str:
        """A message for a client. To the network, full paths, of these places or others, are only names."""
        if self.local:
            return message
        for place in sorted(places, key=len, reverse=True):
            if len(place) > 1:
                message = message.replace(place, os.path.basename(place))
        return FOLDERS_ABOVE.sub("", message)

    def allows_host(self, host: str) -> bool:
        """Whether the `Host` names this machine. The owner of another name could point it at this machine; a
        plain address cannot be pointed elsewhere: a server on a network accepts those, others loopback ones.
        """
        name, _, port = host.lower().rpartition(":") if PORT.search(host) else (host.lower(), "", "")
        address = _parse_address(name.strip("[]"))
        is_own_address = address is not None and (address.is_loopback or not self.local)
        return int(port or 0) <= LARGEST_PORT and (name in self._names or is_own_address)

    def accepts_token(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())

    def knows(self, headers: Headers, port: int) -> bool:
        """Whether a request carries the cookie of the link, or the token."""
        cookies = "; ".join(headers.getlist("cookie"))  # several, from proxies
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return self.accepts_cookie(cookies, port) or self.accepts_token(bearer)

    def find_rights(self, headers: Headers, port: int) -> Rights:
        """Whether a client may add folders and copy files: never from the network."""
        if not self.local:
            return "never"
        return "allowed" if self.knows(headers, port) else "after signing in"

    def accepts_cookie(self, header: str, port: int) -> bool:
        # Not http.cookies, which stops at the first cookie of another program that it does not understand.
        pairs = (piece.strip().partition("=") for piece in header.split(";"))
        values = [value for name, _, value in pairs if name == cookie_name(port)]
        return any(secrets.compare_digest(value.encode(), self._session.encode()) for value in values)

    def make_cookie(self, port: int) -> str:
        flags = f"Path=/; Max-Age={COOKIE_DAYS * 86400}; HttpOnly; SameSite=Strict"
        return f"{cookie_name(port)}={self._session}; {flags}"


def cookie_name(port: int) -> str:
    """Browsers share the cookies of a host among its ports: two servers need two names."""
    return f"fishermix_{port}"


def is_loopback(host: str) -> bool:
    address = _parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def find_own_address(host: str) -> str:
    """The address under which other devices reach a server on `host`."""
    if host not in ("0.0.0.0", "::"):
        return host
    family, anywhere = (
        (socket.AF_INET, "192.0.2.1") if host == "0.0.0.0" else (socket.AF_INET6, "2001:db8::1")
    )
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((anywhere, 9))  # of a datagram socket: chooses the interface, sends nothing
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1" if host == "0.0.0.0" else "::1"


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
