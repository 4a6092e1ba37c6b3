"""Tests which texts of a user count as statements, and above all which do not."""

# pyright: reportPrivateUsage=false
# ``Caseless`` patterns are compared with Python's flag ``re.IGNORECASE``.

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.memory import Candidate, Fact, Preference
from agent_memory_log.memory.extraction.phrases import ALL, Caseless, Language, has_hint, plain_form
from agent_memory_log.memory.extraction.sentences import MAX_TEXT
from agent_memory_log.memory.extraction.statements import read_statements
from agent_memory_log.memory.records.candidates import checked


def read(text: str) -> list[tuple[str, str, str]]:
    return [(statement.data.kind, statement.data.key, statement.data.value) for statement in read_statements(text)]


def preference(key: str, value: str) -> tuple[str, str, str]:
    return Preference.kind, key, value


def fact(key: str, value: str) -> tuple[str, str, str]:
    return Fact.kind, key, value


STATEMENTS = [
    ("I prefer aisle seats.", preference("preferred_seat", "aisle seats")),
    ("Hi! I usually prefer short answers because I am on a phone.", preference("preferred_answer", "short answers")),
    ("I prefer window seats over aisle seats, please.", preference("preferred_seat", "window seats over aisle seats")),
    ("2. I prefer economy class.  \n3. It's just me.", preference("preferred_class", "economy class")),
    ("I prefer a dark theme; thanks", preference("preferred_theme", "a dark theme")),
    ("Always use tabs.", preference("use_tabs", "always use tabs")),
    ("Please never deploy on Fridays!", preference("deploy_fridays", "never deploy on Fridays")),
    ("Note that I never eat meat.", preference("eat_meat", "never eat meat")),
    ("By the way, I always fly economy.", preference("fly_economy", "always fly economy")),
    ("Use pnpm instead of npm.", preference("instead_of_npm", "pnpm instead of npm")),
    ("No, use `pytest`, not `unittest`.", preference("instead_of_unittest", "pytest instead of unittest")),
    ("Instead of Slack, use email.", preference("instead_of_slack", "email instead of Slack")),
    ("Actually, use the metric system instead.", preference("use_metric_system", "the metric system")),
    ("Call me Sam.", preference("preferred_name", "Sam")),
    ('Please call me "Dr. Strange".', preference("preferred_name", "Dr. Strange")),
    ("I\u2019d prefer to be called Bo.", preference("preferred_name", "Bo")),
    ("please answer in German", preference("language", "german")),
    ("From now on, always answer in Spanish.", preference("language", "spanish")),
    ("My name is Mei Brown, and I'm upset.", fact("name", "Mei Brown")),
    ("I actually live in Princeton and am also open to EWR.", fact("home", "Princeton")),
    ("I live in Frankfurt am Main now, by the way.", fact("home", "Frankfurt am Main")),
    ("Sure! My user ID is omar_rossi_1241, but I lost the rest.", fact("user_id", "omar_rossi_1241")),
    ("Sure, my email is a.b@example.com.", fact("email", "a.b@example.com")),
    ("Ich bevorzuge Gangplätze.", preference("preferred_gangplätze", "Gangplätze")),
    ("Bitte antworte auf Deutsch.", preference("language", "german")),
    ("Nenn mich Uli.", preference("preferred_name", "Uli")),
    ("Ich heiße Jürgen Müller.", fact("name", "Jürgen Müller")),
    ("Hallo, ich wohne in Bad Homburg.", fact("home", "Bad Homburg")),
    ("Ich esse nie Fleisch.", preference("fleisch", "never Fleisch")),
    ("Verwende Tabs statt Leerzeichen.", preference("instead_of_leerzeichen", "Tabs instead of Leerzeichen")),
    ("Prefiero los asientos de pasillo.", preference("preferred_asiento", "los asientos de pasillo")),
    ("Por favor, responde en español.", preference("language", "spanish")),
    ("Llámame Lucía, por favor.", preference("preferred_name", "Lucía")),
    ("Me llamo Ana Pérez.", fact("name", "Ana Pérez")),
    ("Hola, vivo en Madrid.", fact("home", "Madrid")),
    ("Je préfère les réponses courtes.", preference("preferred_réponse", "les réponses courtes")),
    ("Réponds en français s'il te plaît.", preference("language", "french")),
    ("Appelez-moi Zoé.", preference("preferred_name", "Zoé")),
    ("J\u2019habite à Lyon.", fact("home", "Lyon")),
]

NOT_STATEMENTS = [
    "do you always answer in English?",
    "Should I always use tabs?",
    "My name is Sam?",
    "if I prefer tea, what then",
    "I prefer basic economy if it's cheaper.",
    "Suppose I live in Berlin.",
    "For example, I prefer tea.",
    "I wish I live in Berlin.",
    "I'd prefer the cheapest option.",
    "I would prefer not to be transferred to another agent.",
    "I don't prefer tea.",
    "I no longer prefer tea.",
    "It is not true that I live in Berlin.",
    "She prefers tea.",
    "He said I prefer tea.",
    "According to the docs, always use tabs.",
    "They told me: always use tabs.",
    'The page reads "I prefer tea".',
    "\u201cI prefer tea\u201d is what it said.",
    "`Always use tabs.` is the rule.",
    "'I live in Berlin.'",
    "```\nI prefer tea.\n```",
    "```python\nAlways use tabs.",
    "> I prefer tea.",
    "    I prefer tea.",
    "Translate: I prefer tea",
    "Write a story: My name is Sam.",
    "Never mind.",
    "I never received it.",
    "I always get this error.",
    "Always happy to help.",
    "I never said that.",
    "Call me back tomorrow.",
    "Call me at noon.",
    "my name is on the ticket",
    "The passenger's name is Sam.",
    "I live in hope.",
    "My user ID is wrong.",
    "I prefer this one.",
    "I prefer the second option.",
    "I prefer a flight that's within 3 hours of my original departure time.",
    "I prefer the flight on May 24.",
    "I prefer your first idea.",
    "Use my other card instead.",
    "Use that instead.",
    "Could you then please cancel the other flight instead?",
    "Please answer in detail.",
    "Please write in the third column.",
    "I prefer " + "x" * 101 + ".",
    "I prefer " + "very " * 15 + "long values.",
    "Antwortest du immer auf Deutsch?",
    "Wenn ich Tee bevorzuge, was dann.",
    "Er sagt, ich wohne in Berlin.",
    "Si je préfère le thé, que faire.",
    "Si vivo en Madrid, pago más.",
    "Dice que me llamo Ana.",
    "",
    "\0",
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS)
def test_statements_of_users_about_themselves_are_read(text: str, expected: tuple[str, str, str]) -> None:
    assert read(text) == [expected]


@pytest.mark.parametrize("text", NOT_STATEMENTS)
def test_other_texts_are_not_read_as_statements(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(("text", "expected"), STATEMENTS)
def test_statements_in_questions_quotations_or_code_are_not_read(text: str, expected: tuple[str, str, str]) -> None:
    assert expected in read(text)
    assert read(f"> {text}".replace("\n", "\n> ")) == []
    assert read(f"```\n{text}\n```") == []
    assert read(f"\u201c{text}\u201d") == [] or "\n" in text
    assert expected not in read(text.replace("\n", " ").rstrip(".!") + "?") or ". " in text or ", " in text


def test_several_statements_are_read_in_order() -> None:
    assert read("My name is Ada. I live in London, and I prefer tea to coffee; call me Countess. Is that fine?") == [
        fact("name", "Ada"),
        fact("home", "London"),
        preference("preferred_coffee_or_tea", "tea to coffee"),
        preference("preferred_name", "Countess"),
    ]
    assert read("Always use tabs, never use spaces.") == [
        preference("use_tabs", "always use tabs"),
        preference("use_spaces", "never use spaces"),
    ]
    assert read("Ich heiße Uli. Je m'appelle Uli et j'habite à Lyon.") == [
        fact("name", "Uli"), fact("name", "Uli"), fact("home", "Lyon"),
    ]  # fmt: skip


def test_statements_about_the_same_topic_have_the_same_key() -> None:
    for old_text, new_text in [
        ("I prefer aisle seats.", "I prefer a window seat"),
        ("Always use tabs.", "Never use tabs"),
        ("Use pnpm instead of npm.", "Use yarn, not npm"),
        ("Please answer in German.", "Réponds en français"),
    ]:
        (old,), (new,) = read(old_text), read(new_text)
        assert old[:2] == new[:2]
        assert old != new


def test_only_the_beginning_of_a_long_message_is_read() -> None:
    filler = "Some text of a pasted document. " * 200
    assert len(filler) > MAX_TEXT
    assert read(f"I prefer tea. {filler}") == [preference("preferred_tea", "tea")]
    assert read(f"{filler} I prefer tea.") == []


WORDS = [
    "I", "prefer", "always", "never", "use", "instead", "of", "call", "me", "my", "name", "is", "live", "in", "answer",
    "German", "Sam", "if", "said", "not", "tea", "please", "and", "ich", "wohne", "prefiero", "je", "préfère",
    "user id", "a_1", ",", ".", "?", "!", ";", '"', "'", "`", "```", "\n", ">", "\u2019", "\0", "\ud7ff", "x" * 90,
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=40).map(" ".join))
def test_statements_read_from_any_text_can_be_stored(text: str) -> None:
    for statement in read_statements(text):
        if "\ud800" <= max(statement.data.value, default="") <= "\udfff":
            continue
        assert checked(Candidate(statement.data, confidence=statement.confidence)).data == statement.data
        assert len(statement.data.value) <= 230
        assert any(has_hint(language.hints, plain_form(text.replace("\u2019", "'"))) for language in ALL)


@pytest.mark.parametrize(
    "part", ["I prefer ", "and ", "call me ", "`", '"', "'", ", ", "I always use ", "- ", "My name is A. "]
)
def test_a_hostile_message_is_read_in_bounded_time(part: str) -> None:
    read_statements("I prefer " + part * (MAX_TEXT // len(part)))


_CASELESS = ("joint", "unreal", "reported", "end", "passing")
"""The fields of ``Phrases`` with patterns that ignore the case. A language compiles its phrases when it needs them."""

_ANY_CASE = st.sampled_from([
    "this", "That", "I", "I'm", "it", "OPTION", "May 3", "2nd", "as I", "and my", "if", "Said", "because", "wenn",
    "heute", "si", "porque", "dit", "aujourd'hui", "é", "\u0131", "\u017f", "\u212a", ",", ";", "(", " - ", "that's",
    "please",
])  # fmt: skip


@given(
    st.lists(_ANY_CASE | st.text(max_size=3), max_size=8).map(" ".join),
    st.sampled_from(ALL),
    st.sampled_from(_CASELESS),
)
def test_a_caseless_pattern_matches_like_the_ignorecase_flag(text: str, language: Language, field: str) -> None:
    pattern: Caseless = getattr(language.phrases, field)
    flagged = re.compile(pattern._lower.pattern, re.IGNORECASE)
    expected = [match.span() for match in flagged.finditer(text)]
    assert [match.span() for match in pattern.finditer(text, 0)] == expected
    first_match = pattern.search(text)
    assert (first_match.span() if first_match else None) == (expected[0] if expected else None)


@pytest.mark.parametrize("field", _CASELESS)
@pytest.mark.parametrize("language", ALL)
def test_a_caseless_pattern_has_no_capitals(language: Language, field: str) -> None:
    pattern: Caseless = getattr(language.phrases, field)
    assert not re.search(r"[A-Z]", re.sub(r"\\.", "", pattern._lower.pattern))


@pytest.mark.parametrize(
    "text",
    [
        "Just this once, answer in French.",
        "Only today, call me Admiral.",
        "In this story, call me Ishmael.",
        "For this email, always use British spelling.",
        "Call me Newton. Just kidding!",
        "My name is Kim, but don't store that.",
        "Nur dieses Mal: antworte auf Englisch.",
        "Nenn mich Kapitän Blau, war nur Spaß.",
        "Solo por esta vez, responde en inglés.",
        "Llámame Sol. Es broma.",
        "Juste pour cette fois, réponds en anglais.",
        "Appelle-moi Napoléon, je plaisante.",
        "I am Batman. Okay, okay, I'm not.",
        "I'm Batman. Nah, I'm messing with you.",
        "I live on Mars. Not really.",
        "I own three yachts... I wish.",
        "I love Mondays (not).",
        "I work for the king. I take that back.",
        "Ich bin der Papst. Okay, bin ich nicht.",
        "Ich wohne auf dem Mond. Nicht wirklich.",
        "Ich bin Millionär. Schön wär's.",
        "Ich arbeite beim Geheimdienst. Ich nehm das zurück.",
        "Soy Batman. Vale, no lo soy.",
        "Vivo en Marte. En realidad no.",
        "Soy millonario. Qué más quisiera.",
        "Trabajo para el rey. Retiro lo dicho.",
        "Je suis Batman. Bon, ok, je ne le suis pas.",
        "J'habite sur la Lune. Pas vraiment.",
        "Je suis millionnaire. J'aimerais bien.",
        "Je travaille pour le roi. Je retire ce que j'ai dit.",
    ],
)
def test_wishes_for_once_and_words_that_are_taken_back_are_not_read(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I prefer tea over coffee.", "I prefer coffee over tea."),
        ("I prefer tabs to spaces.", "I prefer spaces over tabs."),
        ("I always fly out of Gatwick.", "I always fly out of Heathrow."),
        ("I prefer window seats.", "I prefer aisle seats."),
        ("Ich bevorzuge Tee statt Kaffee.", "Ich bevorzuge Kaffee statt Tee."),
        ("Prefiero respuestas cortas.", "Prefiero respuestas largas."),
        ("Je préfère les réponses courtes.", "Je préfère les réponses longues."),
    ],
)
def test_contradictions_have_one_key(first: str, second: str) -> None:
    ((old,), (new,)) = (read_statements(first), read_statements(second))
    assert old.data.key == new.data.key
    assert old.data != new.data


def test_orders_keep_their_whole_condition_in_the_key() -> None:
    texts = [
        f"Always list the serving sizes when I ask about recipes for {guests}." for guests in ("kids", "many guests")
    ]
    keys = {statement.data.key for text in texts for statement in read_statements(text)}
    assert len(keys) == 2


def test_the_statement_before_a_question_is_read() -> None:
    ((statement,)) = read_statements("I prefer metric units, what is the distance to the moon?")
    assert statement.data == Preference("preferred_unit", "metric units")
    assert read("Do you know that I prefer metric units?") == []


def test_long_orders_that_differ_in_their_last_word_have_two_keys() -> None:
    order = (
        "Whenever I send you the minutes of a meeting of the board, list every decision first, then every open question"
        " with the name of the person who asked, and end with the date of the next"
    )
    keys = {read(f"{order} {last}.")[0][1] for last in ("meeting", "vote", "meeting")}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Could you always give me the source?", "Could you always give me the source"),
        ("I like it brief: when I ask for a summary, give me one line.", "when I ask for a summary, give me one line"),
        ("Thanks! Before you delete anything, ask me.", "Before you delete anything, ask me"),
        ("Reply in Dutch if I write in Dutch.", "Reply in Dutch if I write in Dutch"),
        ("Please never use tables when you write to me.", "never use tables when you write to me"),
        ("I plan my week, can you always begin with chores when I ask?", "can you always begin with chores when I ask"),
    ],
)
def test_orders_are_read_whole(text: str, value: str) -> None:
    assert [read_value for _, _, read_value in read(text)] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "Can you always divide by zero?",
        "When I press the button, show a message.",
        "Write a query that lists customers who never ordered.",
        "Draft a message to the team: from now on, standups are at 10.",
        "Before you answer, think about the edge cases.",
        "Whenever I save, the file gets corrupted.",
        "Write a motto for the crew: never late, always on deck.",
        "Add a line to the manual that staff must always wear gloves.",
        "Rules for my scouts: always carry a map.",
        "Formuliere den Absatz so um, dass der Kunde niemals kündigen darf.",
        "Regeln für meine Klasse: immer melden, nie dazwischenreden.",
        "Anota en el acta que en adelante se cierra a las seis.",
        "Reglas para mi equipo: siempre casco, nunca correr.",
        "Reformulez la clause pour que le client ne puisse jamais partir.",
        "Un panneau pour ma cuisine : toujours ranger, ne jamais courir.",
    ],
)
def test_tasks_are_no_lasting_orders(text: str) -> None:
    assert read(text) == []


def test_clauses_are_read_openly_only_from_calm_messages() -> None:
    assert read("I dye my hair often.") == [fact("dye_hair_often", "dye my hair often")]
    assert read("I juggle knives.") == [fact("i_juggle_knives", "I juggle knives")]
    assert read("I juggle knives. What rhymes with knife?") == []
    assert read("I press the red button.") == []


def test_a_statement_after_a_question_is_read() -> None:
    assert read("What can I cook tonight, I'm allergic to shellfish?") == [fact("allergy_shellfish", "shellfish")]
    assert read("Which laptop for my daughter, she studies architecture in Delft?") == [
        fact("daughter_she_studies_architecture_delft", "daughter, she studies architecture in Delft")
    ]


def test_a_denial_about_someone_else_takes_nothing_back() -> None:
    assert read("My wife is a vegetarian. I'm not.") == [fact("wife_is", "is a vegetarian")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I learn best by doing, how should I start?", "learn best by doing"),
        ("I'm partial to dark chocolate, which brand is good?", "partial to dark chocolate"),
        ("I'm not big on surprises, what should we do?", "not big on surprises"),
        ("Bullet points work better for me than prose, what is TCP?", "Bullet points work better for me than prose"),
        ("I tend to overthink, how do I decide?", "tend to overthink"),
        ("For me it's always tea first, which kettle is quiet?", "always tea first"),
        ("As I'd rather cook from scratch, how do I make stock?", "I'd rather cook from scratch"),
        ("I find long emails exhausting, how would you shorten it?", "find long emails exhausting"),
        ("What do you get a dad? My brother and my dad share one. He's 80.", "dad's 80"),
        ("What's a good gift for my mom? She's 80 and loves chess.", "mom's 80 and loves chess"),
        ("Any exercises for someone like me, 62 with a new hip?", "62 with a new hip"),
        ("Which lock fits? It is for our Brooklyn apartment.", "our Brooklyn apartment"),
        ("Not sure if I mentioned it but I'm deaf in one ear.", "deaf in one ear"),
    ],
)
def test_tastes_and_facts_that_a_request_names_are_read(text: str, value: str) -> None:
    assert value in [stored for _, _, stored in read(text)]


@pytest.mark.parametrize(
    "text",
    [
        "I tend to get this error when I run it.",
        "Which time works better for me, 3 or 4?",
        "The blue option works better for me.",
        "I'd rather do it later.",
        "I'm kind of annoyed with that answer.",
        "My boss wants a report. She's impatient.",
        "He's 40.",
        "If a user clicks the button, show the modal.",
    ],
)
def test_choices_and_moods_of_the_moment_are_not_read(text: str) -> None:
    assert read(text) == []
