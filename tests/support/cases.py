"""Four answers about one subject, each of two sentences, with the label a careful reader gives each sentence."""

QUESTION = "Who flew on Apollo 11, and when did it land?"
CONTEXT = [
    "Apollo 11 landed on the Moon on July 20, 1969.",
    "The crew of Apollo 11 was Neil Armstrong, Buzz Aldrin and Michael Collins.",
    "Collins stayed in orbit while Armstrong and Aldrin walked on the surface.",
]
LANDED, WALKED = (
    "Apollo 11 landed on the Moon on July 20, 1969.",
    "Armstrong and Aldrin walked on the surface.",
)
VIEWERS = "Apollo 11 landed on July 20, 1969, in front of 600 million viewers."
ICELAND, COST = (
    "The astronauts had trained in Iceland.",
    "The mission cost 355 million dollars.",
)
COLLINS, IN_1971 = (
    "Michael Collins walked on the surface with Armstrong.",
    "Apollo 11 landed on the Moon in 1971.",
)
LABELS = {
    **{
        LANDED: "fully",
        WALKED: "fully",
        VIEWERS: "partly",
        ICELAND: "nothing",
        COST: "nothing",
    },
    **{COLLINS: "contradicts", IN_1971: "contradicts"},
}
# Each answer, the share of fully supported sentences, and the mean of its labels' weights (1, .5, 0, -1), at least 0.
CASES = [
    (f"{LANDED} {WALKED}", 1.0, 1.0),
    (f"{LANDED} {VIEWERS}", 0.5, 0.75),
    (f"{ICELAND} {COST}", 0.0, 0.0),
    (f"{LANDED} {COLLINS}", 0.5, 0.0),
    (f"{COLLINS} {IN_1971}", 0.0, 0.0),
]

BLUE = "The kettle is blue."
CITES = {"context": ["It boils water.", BLUE], "answer": "It is blue [2]."}
