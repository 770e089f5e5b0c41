"""Words that augmentation may draw from: names, gate and opener phrases, paraphrased descriptions, distractors.

Always holds: the training pool and the held-out pool share no word in names, no phrase in gates and openers and no
description; no two skills or tools have descriptions that begin with the same word, so that a small model finds a line
by it; no held-out name word is a word of rooms, comments or answers. Every word is a common short English one,
so that a small tokeniser keeps it whole. Not here: the original names and texts (harness folders), how names are
built.
"""

from __future__ import annotations

from typing import Final

from hat_scenarios.base import Vocabulary
from hat_scenarios.live_commerce.chinese import LETTERS


def _pool(table: str) -> dict[str, tuple[str, ...]]:
    """`key : word word` a line."""
    rows = (line.split(" : ") for line in table.strip().splitlines())
    return {key.strip(): tuple(row.split()) for key, row in rows}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_TRAIN: Final = _pool("""
item_qa : product goods sku article object
chillchat : talk social friend casual smalltalk
aftersale : service claim complaint trouble problem
clarification : question unclear asking doubt vague
faq_reply : policy shop help common general
refusal : decline block deny reject stop
thanks : grateful cheer gratitude order bought
greet : welcome entry hello visitor arrival
general_discount : deal saving offer coupon sale
change_order : sequence next stage present running
tool_strategy_benefit : bonus rebate voucher benefit promo
tool_strategy_compare : versus pair contrast diff both
tool_strategy_multi : several many group batch crowd
tool_strategy_switch : jump goto shift rotate turn
get_item : fetch read lookup query record
compare_items : relation against balance side cheaper
get_promotion : campaign terms condition discount percent
calculate_promotion : total sum compute bill amount
calculate_optimal_promotion : best least optimal cheapest minimum
get_faq : answer entry rule notice wiki
get_buyer_benefits : member owner personal account mine
change_presentation_order : move place arrange sort position
start_explanation : explain begin show speak open
item : product sku goods article
first : left one base main
second : right two rival extra
topic : subject key theme field
count : number pieces quantity amount
position : place slot spot where
activation : load use pick
activation.parameter : name skill id
""")
_HELD_OUT: Final = _pool("""
item_qa : merch ware catalog listing stuff
chillchat : banter vibe mingle gossip chatter
aftersale : care remedy fixing support restore
clarification : probe confirm followup detail inquire
faq_reply : handbook guide manual helpdesk desk
refusal : guard avoid dismiss veto shield
thanks : bless admire applaud honor salute
greet : usher doorway meet enter knock
general_discount : bargain markdown perk cashback clearance
change_order : queue lineup playlist agenda program
tool_strategy_benefit : reward gain trim loyalty grant
tool_strategy_compare : match weigh duel rank judge
tool_strategy_multi : bundle stack cluster merge bulk
tool_strategy_switch : toggle flip advance hop skip
get_item : pull inspect view scan profile
compare_items : measure face oppose rate differ
get_promotion : banner event festival season ticket
calculate_promotion : invoicing tally charge cashier checkout
calculate_optimal_promotion : ideal smart prime perfect tune
get_faq : bulletin leaflet page chapter memo
get_buyer_benefits : holder client patron visa passport
change_presentation_order : reorder reshuffle carousel slide ladder
start_explanation : launch demo pitch narrate feature
item : entity parcel stockid wareid
first : alpha lead source origin
second : beta tail target partner
topic : matter area label keyword
count : volume heap dozen tote
position : index rung seat corner
activation : choose grab summon
activation.parameter : persona title alias
""")
_TRAIN_ANY: Final = _words(
    """
skill flow mode unit task role pack node handler action amber birch cedar delta ember falcon garnet
hazel indigo jasper karma lotus maple nectar onyx pearl quartz raven sable topaz ultra violet willow
xenon yarrow zephyr
"""
)
_HELD_OUT_ANY: Final = _words(
    """
agent module routine kit cube lane plan hub engine worker acorn basil coral dahlia elm fern ginger
holly ivory juniper kelp lilac mango nutmeg olive poppy quill rose sage thyme umber vanilla walnut
xylem yam zinc
"""
)

GATES: Final = (
    "thanks for watching",
    "come back soon",
    "checked by host",
    "stay with us",
    "follow the room",
    "see you tonight",
    "tap the heart",
    "enjoy the stream",
    "more to come",
    "ask me anything",
    "happy shopping today",
    "take your time",
)
HELD_OUT_GATES: Final = (
    "verified just now",
    "have a lovely day",
    "share with friends",
    "join again anytime",
    "tell your family",
    "keep it cosy",
    "until the finale",
    "hope that helped",
)
OPENERS: Final = ("dear", "friend", "hello", "hi there", "sweetie", "guest", "hey", "my dear", "good evening", "love")
HELD_OUT_OPENERS: Final = ("darling", "buddy", "good day", "hey you", "captain", "neighbour", "honey", "fellow fan")

DESCRIPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "item_qa": ("facts on price colour material or stock", "price , size , colour or stock of a product"),
    "chillchat": ("hello and small talk with viewers", "casual friendly chat"),
    "aftersale": ("complaint about an order that arrived broken", "trouble with an order , refund or exchange"),
    "clarification": ("ask back when the comment is unclear", "viewer did not name a product"),
    "faq_reply": (
        "policy of the shop , shipping , payment , warranty",
        "common shop questions , invoice , gift , delivery",
    ),
    "refusal": ("decline improper or off topic comments", "improper request or spam , say no"),
    "thanks": ("thank the buyer of an order", "placed order , say thanks"),
    "greet": ("welcome a viewer who enters", "greeting for a viewer who came in"),
    "general_discount": ("discount or coupon of the room", "money off , coupon and sale"),
    "change_order": ("present another product next", "another product is shown next"),
    "tool_strategy_benefit": ("totals and coupons , how to find them", "credit , coupon or total , which tool"),
    "tool_strategy_compare": ("between two products , how to decide", "which of two products , the tool for it"),
    "tool_strategy_multi": ("how to answer several comments at once", "many comments in one reply"),
    "tool_strategy_switch": ("stage and order , which tool", "moving between products , the tool for it"),
    "get_item": ("fetch product facts", "look up a product record"),
    "compare_items": ("put two products side by side", "side by side , a pair of products"),
    "get_promotion": ("promotion or coupon of a product", "get money off or the room sale"),
    "calculate_promotion": ("sum for a number of pieces", "pieces and what they cost"),
    "calculate_optimal_promotion": ("lowest total with all coupons", "cheapest way to pay"),
    "get_faq": ("answer of the shop on a topic", "topic entry of the shop policy"),
    "get_buyer_benefits": ("coupons and credit of the buyer", "buyer coupons and credit"),
    "change_presentation_order": ("change the place of a product", "place a product first , next or last"),
    "start_explanation": ("begin to explain a product", "explain a product on stage"),
}
HELD_OUT_DESCRIPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "item_qa": ("what a product costs , its colour , size , material",),
    "chillchat": ("be friendly when viewers chat",),
    "aftersale": ("something is wrong with an order",),
    "clarification": ("the product is not clear , ask",),
    "faq_reply": ("questions on the shop like shipping",),
    "refusal": ("improper request or spam",),
    "thanks": ("a buyer has ordered",),
    "greet": ("a new viewer came in",),
    "general_discount": ("discount , coupon , sale questions",),
    "change_order": ("viewer wants another product on stage",),
    "tool_strategy_benefit": ("finding coupon , credit and total",),
    "tool_strategy_compare": ("choosing between two products",),
    "tool_strategy_multi": ("more than one comment together",),
    "tool_strategy_switch": ("changing what is on stage",),
    "get_item": ("the record of one product",),
    "compare_items": ("two products , which is cheaper",),
    "get_promotion": ("the coupon or the room sale",),
    "calculate_promotion": ("what some pieces cost together",),
    "calculate_optimal_promotion": ("least to pay with own coupons",),
    "get_faq": ("shop policy on one topic",),
    "get_buyer_benefits": ("what coupons a buyer has",),
    "change_presentation_order": ("give a product another place",),
    "start_explanation": ("explain a product now",),
}
DISTRACTORS: Final = (
    ("city_weather", "weather report for a city"),
    ("play_song", "play a song"),
    ("clock_time", "tell the time"),
    ("word_bridge", "translate a sentence"),
    ("lucky_draw", "draw lots for viewers"),
    ("head_count", "count the audience"),
    ("taxi_ride", "book a taxi"),
    ("poem_hour", "recite a poem"),
    ("room_lights", "control the lights"),
    ("clip_maker", "record a clip"),
)
HELD_OUT_DISTRACTORS: Final = (
    ("bus_times", "times of the night bus"),
    ("tea_recipe", "recipe for green tea"),
    ("star_chart", "name the stars in the sky"),
    ("pet_names", "find a name for a cat"),
    ("film_list", "list films of the week"),
    ("garden_tips", "tips for a garden"),
)


def vocabulary(held_out: bool = False) -> Vocabulary:
    """The training pool, or the held-out one."""
    names, anything = (_HELD_OUT, _HELD_OUT_ANY) if held_out else (_TRAIN, _TRAIN_ANY)
    return Vocabulary(
        names={**names, "": anything},
        gates=HELD_OUT_GATES if held_out else GATES,
        openers=HELD_OUT_OPENERS if held_out else OPENERS,
        descriptions=HELD_OUT_DESCRIPTIONS if held_out else DESCRIPTIONS,
        distractors=HELD_OUT_DISTRACTORS if held_out else DISTRACTORS,
        letters=LETTERS,
    )
