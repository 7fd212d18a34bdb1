"""Everyday words beside the grammar's own, so that the tokenizer has pieces the world never needs, as real ones have."""

from __future__ import annotations

_WORDS = """
    able about above accept across action active actor adult advice after again against agree ahead
    alone already always amount ancient anger angle animal another anyone appear area argue around
    arrive artist asleep autumn average awake balance basic basket battle beauty because become before
    began begin behind believe below beneath beside better between beyond blanket border borrow branch
    brave bread bridge brief bring broad brother build burn business button candle capital captain
    careful carry castle catch center century certain chance change charge cheap check child choice
    circle citizen city class clever climb close cloth cloud collect common company compare complete
    copper corner cotton country courage course cover create cross culture curious current curtain daily
    dance danger daughter decide deep degree depend desert design detail develop differ distance divide
    doctor double doubt dream dress drive during early earth easy edge effort either empty energy engine
    enjoy enough enter entire equal evening event every exact example expect explain extra family famous
    farmer father feather fellow fence field figure final finger finish first flower follow foreign
    forest forget forward freedom fresh friend future garden gather general gentle ghost glance gold
    govern grand great ground group growth guard guess guest guide habit half hammer handle happen happy
    harbor harvest health heavy height hidden history hollow honest honor hope hotel house human humble
    hundred hunger hurry idea image include increase indeed industry inside instead interest iron island
    join journey judge just kind king knee know known labor ladder language large later laugh lawyer
    leader learn leather leave legal lesson letter level library likely limit listen little local logic
    lonely lower lucky machine magic manner market marry master matter measure medicine melody member
    memory mention method middle million minute mirror mixture model modern moment money month moral
    morning mother motion murmur music mystery narrow nation native nature nearby needle neither nephew
    never noble noise normal north nothing notice number object observe obtain ocean offer office often
    older once opinion order other owner palace paper parent partner patient pattern perfect
    period permit physical picture pillow pilot planet plastic plenty pocket poetry point polite popular
    position possible powder power practice prepare present press pretty prevent price pride prince
    problem process produce promise proof protect proud public purpose quality quarter question quick
    quiet quite rabbit rain rather reach ready real reason receive record reflect region regular relate
    remain remember repair repeat report require respect rest result return reward rhythm rich ripple
    river road rough round royal rubber sacred safety salt sample satisfy scale scholar school science
    season second secret section seldom select senior sense series serious service settle seven shadow
    shallow shape share sharp shelter shine shore short should shoulder shout silence silver similar
    simple since single sister slight slow smile smooth soldier solid sometimes song sorrow sound south
    space special speech spirit spread spring square stable steady steel stone storm story strange
    stream strength strong student subject success sudden sugar suggest summer supply support sure
    surface surprise sweet swim system tail target teacher temple tender thank theory thick thin thing
    think thousand thread throat through thunder ticket timber together tomorrow tongue tower trade
    travel treat trouble trust truth turn twelve twice under uncle understand union unit until upper
    useful usual valley value various velvet very victory village visit voice volume voyage wagon waste
    water wealth weather weight welcome western wheel whisper whole wide willing winter wisdom within
    without wonder wood world worth write wrong yellow yesterday young youth
"""
_QUIET_WORDS = """
    about after again amount around borrow bread bring burn certain create detail enter friend iron know
    paper power rain rough sample since slight slow song sorrow swim theory under
"""

WORDS: tuple[str, ...] = tuple(_WORDS.split())
"""About five hundred ordinary words that name no object of the world."""

QUIET_WORDS: tuple[str, ...] = tuple(f" {word}" for word in _QUIET_WORDS.split())
"""Everyday words in one piece that no description uses; visual states are taught to leave them a share of their reading."""
