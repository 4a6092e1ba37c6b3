"""What only English needs: its function words, its irregular forms, its numbers in words.

The function words are few on purpose: "work", "found" or "group" are what people ask about, and long stop word lists
hold them. Irregular forms are those a stemmer, which only cuts endings, cannot bring together.
"""

from __future__ import annotations

from typing import Final

STOP_WORDS: Final = frozenset(
    """
    a an the this that these those
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves one
    who whom whose what which where when why how whatever whoever
    am is are was were be been being do does did doing done have has had having
    can could shall should will would may might must ought cannot
    and or but nor so yet if then than because while although though unless whether as
    of in on at by for with about to from into onto upon over under between during through within without
    up down out off again further once there here
    not no any some such each both all either neither other another
    very too also just only even ever quite rather really
    s t d m o y ll ve re don didn doesn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn mustn needn ain
    im ive id ill youre youve hes shes theyre weve dont didnt doesnt isnt cant wont wouldnt couldnt thats whats
    oh ah hey hi hello yeah yes ok okay well um hmm wow
    """.split()  # noqa: SIM905  # a table to read, not a column of quotes
)
"""Words that say how a sentence is built and not what it is about; contractions are cut at apostrophes."""

_FORMS: Final = """
arise arose arisen;awake awoke awoken;bear bore borne;beat beaten;become became;begin began begun;bend bent;bet
bind bound;bite bit bitten;bleed bled;blow blew blown;break broke broken;breed bred;bring brought;build built
burn burnt;buy bought;catch caught;choose chose chosen;cling clung;come came;creep crept;deal dealt;dig dug
draw drew drawn;dream dreamt;drink drank drunk;drive drove driven;eat ate eaten;fall fell fallen;feed fed
feel felt;fight fought;find found;flee fled;fly flew flown;forbid forbade forbidden;forget forgot forgotten
forgive forgave forgiven;freeze froze frozen;get got gotten;give gave given;go went gone;grind ground;grow grew grown
hang hung;hear heard;hide hid hidden;hold held;keep kept;kneel knelt;know knew known;lay laid;lead led;lean leant
leap leapt;learn learnt;leave left;lend lent;lie lay lain;light lit;lose lost;make made;mean meant;meet met
mistake mistook mistaken;overcome overcame;pay paid;prove proven;ride rode ridden;ring rang rung;rise rose risen
run ran;say said;see saw seen;seek sought;sell sold;send sent;sew sewn;shake shook shaken;shine shone;shoot shot
show shown;shrink shrank shrunk;sing sang sung;sink sank sunk;sit sat;sleep slept;slide slid;smell smelt
speak spoke spoken;speed sped;spell spelt;spend spent;spill spilt;spin spun;spit spat;spoil spoilt;
spring sprang sprung;stand stood;steal stole stolen;stick stuck;sting stung;stink stank stunk
strike struck stricken;strive strove striven
swear swore sworn;sweep swept;swell swollen;swim swam swum;swing swung;take took taken;teach taught;tear tore torn
tell told;think thought;throw threw thrown;undergo underwent undergone;understand understood;undo undid undone
wake woke woken;wear wore worn;weave wove woven;weep wept;win won;wind wound
withdraw withdrew withdrawn;write wrote written
man men;woman women;child children kid kids;foot feet;tooth teeth;goose geese;mouse mice;person people;wife wives
knife knives;half halves;shelf shelves;wolf wolves;thief thieves;loaf loaves;calf calves
self selves;scarf scarves;ox oxen;die dying died dead;tie tying;good better best;bad worse worst
"""
"""A base form and the forms that mean it; "lives" and "leaves" are verbs more often."""

_NOUNS: Final = """
mother mom mum mommy mummy;father dad daddy;grandmother grandma granny;grandfather grandpa grandad
photograph photo picture pic;television tv telly;phone telephone;bike bicycle;refrigerator fridge
mathematics math maths;advertisement ad advert;veterinarian vet;university uni;favourite favorite fave;colour color
christmas xmas;film movie;husband hubby
marry marriage;decide decision;die death;grow growth;sell sale;fly flight;lose loss;speak speech;choose choice
"""
"""A word, and what people say for it or the noun made of it. These have plurals, which are forms too."""

_NUMBERS: Final = """
two 2;three 3;four 4;five 5;six 6;seven 7;eight 8;nine 9;ten 10;eleven 11;twelve 12;thirteen 13;fourteen 14
fifteen 15;sixteen 16;seventeen 17;eighteen 18;nineteen 19;twenty 20;thirty 30;forty 40;fifty 50;sixty 60;seventy 70
eighty 80;ninety 90;hundred 100;thousand 1000;twice 2;first 1;second 2;third 3;fourth 4;fifth 5;sixth 6;seventh 7
eighth 8;ninth 9;tenth 10
"""
"""A number in words and in digits; "one" is a function word."""


def _rows(table: str) -> list[list[str]]:
    return [row.split() for line in table.split("\n") for row in line.split(";") if row.strip()]


IRREGULAR: Final = (
    {form: row[0] for row in _rows(_FORMS) for form in row[1:]}
    | {form + plural: row[0] for row in _rows(_NOUNS) for form in row[1:] for plural in ("", "s")}
    | {row[0]: row[1] for row in _rows(_NUMBERS)}
)
"""Word form -> base form, and number word -> digits; what is not in it is left to the stemmer."""
