"""Words of the grammar that name no object: openings, places, backdrops, moods, closings.

None of them may contain a name that an object (or a COCO category) goes by, or descriptions would be miscounted.
"""

from __future__ import annotations

OPENINGS = (
    "The image shows {kind} with {things}.",
    "The image shows {kind} with {things}.",
    "The image features {kind} with {things}.",
    "The picture shows {things} in {kind}.",
    "The image depicts {things} in {kind}.",
)
VAGUE = ("a small item", "a small item", "a few other things", "something small", "some other items")
PLACES = {
    "left": ("on the left", "on the left side", "to the left"),
    "right": ("on the right", "on the right side", "to the right"),
    "middle": ("in the middle", "in the center"),
    "back": ("in the background", "farther away"),
    "front": ("in the foreground", "close to the viewer", "near the bottom"),
}
MOODS = (
    "calm", "cheerful", "lively", "cozy", "peaceful", "tidy", "pleasant", "simple", "friendly", "relaxed",
    "warm", "colorful", "plain", "welcoming",
)  # fmt: skip
CLOSINGS = (
    "Overall, the scene looks {one} and {two}.",
    "Overall, it is a {one} {kind}.",
    "The whole scene has a {one} and {two} mood.",
    "Overall, the atmosphere feels {one}.",
)
BACKDROP_LINES: dict[str, tuple[str, ...]] = {
    "kitchen": ("The tiles on the wall look clean.", "Wooden cupboards hang along the wall."),
    "dining room": ("A warm lamp hangs from the ceiling.", "The floor is made of dark wood."),
    "living room": ("Daylight comes in through the window.", "A round carpet covers the floor."),
    "bedroom": ("The wallpaper has thin stripes.", "Soft light falls through the window."),
    "bathroom": ("The walls are covered with pale tiles.", "Everything is tiled and bright."),
    "office": ("Gray panels cover the wall.", "The blinds are half open."),
    "street": ("Tall buildings stand along the road.", "The lane markings are clearly painted."),
    "park": ("Green bushes grow behind the path.", "A narrow path leads through the grass."),
    "beach": ("Gentle waves roll onto the sand.", "The sun shines over the sea."),
    "farm": ("A red barn stands behind the fence.", "A wooden fence runs across the meadow."),
    "savanna": ("Flat trees rise above the dry grass.", "The sun hangs low over the plain."),
    "station": ("Iron arches carry the roof of the hall.", "A yellow line marks the platform."),
    "airport": ("The terminal lies beside the runway.", "White lines are painted on the runway."),
    "market": ("A striped awning covers the stalls.", "Wooden shelves stand behind the goods."),
    "mountain": ("Snowy peaks rise into the sky.", "Fresh snow covers the slope."),
    "stadium": ("A crowd of fans fills the stands.", "White lines cross the pitch."),
    "cafe": ("A menu is written on the blackboard.", "Warm lamps hang above the room."),
}
