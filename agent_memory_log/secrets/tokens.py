"""The forms of providers' tokens: a table. Each has a prefix that hardly anything else has, as its provider documents.

To add one: a row in ``_PREFIXED``, and its case in ``tests/secrets/data``.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Form(NamedTuple):
    """A form of secret.

    - ``hint``: how ``pattern`` begins, compared exactly; it is tried only where the hint stands. ``""``: anywhere.
    - ``pattern``: its last group is the secret, or all of it where it has none. Every repetition is bounded or stops at
      the first character that does not fit, so that no text takes more than linear time.
    - ``before``: what must end where the hint begins; it belongs to the secret.
    """

    kind: str
    hint: str
    pattern: re.Pattern[str]
    before: re.Pattern[str] | None = None


LONGEST_BEFORE = 80
"""How many characters ``before`` may match."""


_W = r"[A-Za-z0-9_-]"
_A = r"[A-Za-z0-9]"
_HEX = r"[0-9a-f]"
_B58 = r"[1-9A-HJ-NP-Za-km-z]"

# Kind, prefixes, what follows each of them.
_PREFIXED: tuple[tuple[str, str, str], ...] = (
    ("aws_access_key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16,20}"),
    ("aws_session_token", "IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz", r"[A-Za-z0-9+/]{60,}={0,2}"),
    ("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{_A}{{20,}}"),
    ("github_token", "github_pat_", r"[A-Za-z0-9_]{22,}"),
    ("gitlab_token", "glpat- gldt- glrt- glptt- glcbt- glsoat- glft- glimt-", rf"{_W}{{20,}}(?:\.{_W}{{2,30}}){{0,2}}"),
    ("slack_token", "xox", r"[abceoprs](?:\.xox[bp])?-(?=[A-Za-z-]{0,40}[0-9])[A-Za-z0-9-]{10,}"),
    ("slack_token", "xapp-", r"[A-Za-z0-9-]{20,}"),
    ("slack_webhook", "https://hooks.slack.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9_/-]{20,}"),
    ("discord_webhook", "https://discord.com/api/webhooks/", rf"[0-9]{{15,20}}/{_W}{{40,}}"),
    ("discord_webhook", "https://discordapp.com/api/webhooks/", rf"[0-9]{{15,20}}/{_W}{{40,}}"),
    ("stripe_key", "sk_live_ sk_test_ rk_live_ rk_test_", rf"{_A}{{16,}}"),
    ("stripe_key", "whsec_", r"[A-Za-z0-9+/]{24,}={0,2}"),
    ("sendgrid_key", "SG.", rf"{_W}{{16,64}}\.{_W}{{16,}}"),
    ("mailgun_key", "key-", rf"{_HEX}{{32}}"),
    ("npm_token", "npm_", rf"{_A}{{20,}}"),
    ("pypi_token", "pypi-A", rf"{_W}{{20,}}"),
    ("huggingface_token", "hf_ api_org_", rf"{_A}{{20,}}"),
    ("anthropic_key", "sk-ant-", rf"{_W}{{20,}}"),
    ("openai_key", "sk-", rf"(?={_W}{{0,24}}?{_A}{{12}}){_W}{{20,}}"),
    ("google_key", "AIza", rf"{_W}{{30,}}"),
    ("google_key", "GOCSPX- ya29. 1//0", rf"{_W}{{20,}}"),
    ("azure_key", "AccountKey= SharedAccessKey=", r"([A-Za-z0-9+/]{40,}={0,2})"),
    ("digitalocean_token", "dop_v1_ doo_v1_ dor_v1_", rf"{_A}{{32,}}"),
    ("age_key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{40,}"),
    ("vault_token", "hvs. hvb. hvr.", rf"{_W}{{24,}}"),
    ("databricks_token", "dapi", rf"{_HEX}{{28,}}"),
    ("sentry_token", "sntrys_ sntryu_", r"[A-Za-z0-9_+/=-]{40,}"),
    ("grafana_token", "glsa_ glc_", r"[A-Za-z0-9_+/=]{32,}"),
    ("pulumi_token", "pul-", rf"{_HEX}{{32,}}"),
    ("figma_token", "figd_", rf"{_W}{{20,}}"),
    ("airtable_token", "pat", rf"{_A}{{14}}\.{_HEX}{{64}}"),
    ("square_token", "EAAA sq0atp- sq0csp-", rf"{_W}{{22,}}"),
    ("facebook_token", "EAA", rf"{_A}{{80,}}"),
    ("replicate_token", "r8_", rf"{_A}{{20,}}"),
    ("groq_key", "gsk_", rf"{_A}{{20,}}"),
    ("xai_key", "xai-", rf"{_A}{{20,}}"),
    ("perplexity_key", "pplx-", rf"{_A}{{20,}}"),
    ("nvidia_key", "nvapi-", rf"{_W}{{20,}}"),
    ("tavily_key", "tvly-", rf"{_W}{{20,}}"),
    ("langsmith_key", "lsv2_pt_ lsv2_sk_", rf"{_HEX}{{32}}_{_HEX}{{10}}"),
    ("atlassian_token", "ATATT3 ATCTT3", rf"{_W}{{20,}}(?:={_A}{{8}})?"),
    ("rubygems_key", "rubygems_", rf"{_HEX}{{32,}}"),
    ("docker_token", "dckr_pat_ dckr_oat_", rf"{_W}{{20,}}"),
    ("supabase_token", "sbp_ sb_secret_", rf"{_W}{{20,}}"),
    ("planetscale_token", "pscale_tkn_ pscale_pw_ pscale_oauth_", rf"{_W}{{32,}}"),
    ("notion_token", "ntn_ secret_", rf"(?=[A-Za-z]{{0,30}}[0-9]){_A}{{30,}}"),
    ("linear_key", "lin_api_ lin_oauth_", rf"{_A}{{20,}}"),
    ("doppler_token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim.", r"[A-Za-z0-9_.-]{40,}"),
    ("shopify_token", "shpat_ shpss_ shpca_ shppa_", rf"{_A}{{24,}}"),
    ("postman_key", "PMAK-", rf"{_W}{{24,}}"),
    ("newrelic_key", "NRAK-", r"[A-Z0-9]{20,}"),
    ("onepassword_token", "ops_eyJ", r"[A-Za-z0-9+/=_-]{100,}"),
    ("brevo_key", "xkeysib- xsmtpsib-", rf"{_W}{{20,}}"),
    ("tailscale_key", "tskey-", rf"{_W}{{16,}}"),
    ("service_token", "nfp_ rnd_ fo1_ dp1_ bkua_ pcsk_ phx_ jina_ tfp_ rpa_ CFPAT- EZAK CCIPAT_", rf"{_W}{{24,}}"),
    ("service_token", "sqp_ squ_ sqa_", rf"{_HEX}{{32,}}"),
    ("service_token", "FlyV1 ", r"fm2_[A-Za-z0-9+/=_,-]{40,}"),
    ("service_token", "dt0c01.", r"[A-Z0-9]{20,}\.[A-Z0-9]{40,}"),
    ("resend_key", "re_", rf"{_A}{{6,10}}_{_A}{{16,}}"),
    ("dropbox_token", "sl.", rf"(?:u\.)?{_W}{{60,}}"),
    ("braintree_token", "access_token$", r"(?:production|sandbox)\$[a-z0-9]{10,}\$[0-9a-f]{20,}"),
    ("mapbox_token", "sk.eyJ", rf"{_W}{{20,}}\.{_W}{{10,}}"),
    ("password_hash", "$2a$ $2b$ $2y$", r"[0-9]{2}\$[A-Za-z0-9./]{40,}"),
    ("password_hash", "$apr1$ $1$ $5$ $6$ $y$", r"[A-Za-z0-9./=,$]{1,60}\$[A-Za-z0-9./]{20,}"),
    ("password_hash", "$argon2id$ $argon2i$", r"[A-Za-z0-9=,$+/]{40,}"),
    ("password_hash", "{SSHA} {SHA}", r"[A-Za-z0-9+/]{20,}={0,2}"),
    ("alibaba_key", "LTAI", rf"{_A}{{16,24}}"),
    ("wallet_key", "xprv yprv zprv tprv", rf"{_A}{{100,}}"),
)  # fmt: skip

_OTHER: tuple[Form, ...] = (
    # Secrets without a form of their own, that stand soon after their ids.
    Form(
        "aws_secret_key",
        "AKIA",
        re.compile(
            r"AKIA[A-Z0-9]{16}[^A-Za-z0-9](?:.|\n){0,160}?(?<![A-Za-z0-9/+])"
            r"(?![0-9a-f]{40})((?=[A-Za-z/+]{0,39}[0-9])[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
        ),
    ),
    Form("twilio_token", "AC", re.compile(rf"AC{_HEX}{{32}}[^\n]{{1,30}}?(?<!{_A})({_HEX}{{32}})(?!{_A})")),
    Form("twilio_key", "SK", re.compile(rf"(?<!{_A})(?<!SID=)(?<!sid: )SK{_HEX}{{32}}(?!{_A})")),
    Form(
        "private_key",
        "-----BEGIN ",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:[^-]|-(?!----)){0,16000}-----END [A-Z0-9 ]{0,60}-----"
            r"|(?:(?:\s|\\{1,4}[nr]){0,4}[A-Za-z0-9+/=]{4,}){0,400})"
        ),
    ),
    Form("jwt", "eyJ", re.compile(rf"(?<!{_W})eyJ{_W}{{8,}}\.eyJ{_W}{{8,}}\.{_W}{{8,}}")),
    Form(
        "teams_webhook",
        ".webhook.office.com/",
        re.compile(r"\.webhook\.office\.com/[\w@/-]{20,}"),
        re.compile(r"https://[a-z0-9-]{1,60}\Z"),
    ),
    Form("azure_key", "Q~", re.compile(r"Q~[\w~.-]{31,34}(?![\w~-])"), re.compile(r"(?<![\w~.-])[\w~.-]{3}[78]\Z")),
    Form("azure_signature", "sig=", re.compile(r"(?<![A-Za-z0-9])sig=([A-Za-z0-9%+/_-]{30,}={0,2})")),
    Form("telegram_token", ":AA", re.compile(rf":AA{_W}{{33}}(?!{_W})"), re.compile(r"(?<![A-Za-z0-9])[0-9]{8,10}\Z")),
    Form("mailchimp_key", "-us", re.compile(rf"-us[0-9]{{1,2}}(?!{_A})"), re.compile(rf"(?<!{_A}){_HEX}{{32}}\Z")),
    Form("terraform_token", ".atlasv1.", re.compile(rf"\.atlasv1\.{_W}{{60,}}"), re.compile(rf"(?<!{_A}){_A}{{14}}\Z")),
    Form("mailgun_key", "ailgun", re.compile(rf"ailgun[^\n]{{0,24}}?\b({_HEX}{{32}}-{_HEX}{{8}}-{_HEX}{{8}})(?!{_W})")),
    Form("discord_token", "", re.compile(rf"(?<!{_W})[MNO]{_W}{{23,27}}\.{_W}{{6}}\.{_W}{{27,40}}(?!{_W})")),
    Form("wallet_key", "", re.compile(rf"(?<!{_A})(?:5[HJK]{_B58}{{49}}|[KL][1-5]{_B58}{{50}})(?!{_A})")),
)  # fmt: skip


def _forms() -> tuple[Form, ...]:
    rows = [
        Form(kind, hint, re.compile(rf"(?<![A-Za-z0-9]){re.escape(hint)}{rest}(?![A-Za-z0-9])"))
        for kind, hints, rest in _PREFIXED
        for hint in hints.split()
    ]
    return (*_OTHER, *rows)


TOKEN_FORMS = _forms()
