"""The callers that have a JSON Web Token (RFC 7519) of an OpenID Connect issuer. Needs the extra ``oidc``.

Follows RFC 8725, the best current practice: only signatures with public keys, and checks of issuer, audience and time.
"""

from __future__ import annotations

from collections.abc import Mapping

import jwt
import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.principals import HOME_SCOPE, Principal, stream_of
from agent_memory_log.service.access.bearer import bearer_token, unauthenticated
from agent_memory_log.service.access.key_set import ALGORITHMS, KeySet
from agent_memory_log.service.grants import Grant, rights_in

LEEWAY = 30
"""The difference that the issuer's clock and ours may have, in seconds."""

_REQUIRED = ("exp", "iss", "aud", "sub")
_RIGHT_PREFIX = "amlog:"


class Claims(msgspec.Struct, frozen=True):
    """The names of the claims that say what a caller may do. A token without one of the first three is refused.

    Attributes:
        tenant: The claim with the tenant.
        user: The claim with the user's id, which the issuer must never give to another user.
        rights: The claim with the rights ``amlog:read``, ``amlog:write`` and ``amlog:erase``, as text with spaces or as
            a list. Other values are ignored.
        agents: The claim with patterns of agents, as text with spaces or as a list. Without it, the caller reaches only
            memory.
    """

    tenant: str = "tenant"
    user: str = "sub"
    rights: str = "scope"
    agents: str = "amlog_agents"


class OidcCallers:
    """Knows the callers by the tokens of an issuer.

    Args:
        issuer: The URL of the issuer, exactly as its tokens have it. It begins with ``https://``. Only on this machine
            ``http://`` is allowed.
        audience: The audience that a token must have.
        claims: The names of the claims that say what a caller may do.

    Raises:
        InvalidArgument: ``issuer`` is no such URL, or ``audience`` is empty.
    """

    def __init__(self, issuer: str, audience: str, claims: Claims = Claims()) -> None:  # noqa: B008  # immutable
        if not audience:
            raise InvalidArgument("the audience must not be empty: name this server as the issuer's tokens do")
        self._keys = KeySet(issuer)
        self._issuer = issuer
        self._audience = audience
        self._claims = claims

    async def contact(self) -> str:
        """Read the keys of the issuer. Return the reason why they cannot be read, or ``""``."""
        return await self._keys.contact()

    async def grant_of(self, authorization: str | None) -> Grant:
        """Return what the caller with this ``Authorization`` header may do.

        Raises:
            Unauthenticated: The token is not valid, or lacks a claim. The message does not say why.
            StoreUnavailable: The keys of the issuer could not be read yet.
        """
        token = bearer_token(authorization)
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise unauthenticated()
            key = await self._keys.find(header.get("kid"))
            if key is None:
                raise unauthenticated()
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY,
                options={"require": list(_REQUIRED), "enforce_minimum_key_length": True},
            )
            return self._grant(claims)
        except (jwt.PyJWTError, InvalidArgument) as error:
            raise unauthenticated() from error

    def _grant(self, claims: Mapping[str, object]) -> Grant:
        """Return the grant of verified claims. Raises an error if they do not make one."""
        tenant, user = claims.get(self._claims.tenant), claims.get(self._claims.user)
        words = _words(claims.get(self._claims.rights))
        rights = rights_in([word.removeprefix(_RIGHT_PREFIX) for word in words if word.startswith(_RIGHT_PREFIX)])
        agents = _words(claims.get(self._claims.agents, ""))
        if not isinstance(tenant, str) or not isinstance(user, str) or not rights or any(map(is_reserved, agents)):
            raise unauthenticated()
        principal = Principal(tenant, {HOME_SCOPE: user})
        return Grant(f"oidc:{stream_of(principal.subject(HOME_SCOPE))}", rights, principal, agents)


def _words(claim: object) -> tuple[str, ...]:
    """Return the values of a claim that is text with spaces, or a list of texts. Raises an error for another form."""
    if isinstance(claim, str):
        return tuple(claim.split())
    try:
        return msgspec.convert(claim, tuple[str, ...], strict=True)
    except msgspec.ValidationError as error:
        raise unauthenticated() from error
