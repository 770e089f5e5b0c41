"""Characters that the Chinese harness of the room is written in: a tokeniser keeps each of them whole.

Always holds: every character of `live-commerce-zh` is here. Not here: texts.
"""

from __future__ import annotations

from typing import Final

LETTERS: Final = (
    "。「」『』一上下不与两个中主之买了事亲付件价众优传位低余做先入全公具再写几出列则"
    "到刷券前加动单变句另只叫史同名后和品哪售商回在处复大失头夸始字存完实宣家寸尺尾屏"
    "展工己带序库店开当录必总情惠意感或扣技把折拥按损换提播改数文新时是最有未权材束条"
    "来松查格楚次欢款歉步每比注清满热照爱版现用的益目直相看短破示移稍第等答简算结网置"
    "聊能自色行表要观规解订记讲论评话误说请读调谢败质费起足跑轮轻载较边过迎运这进迟通"
    "道那里铺错问闲间需静顺须题颜额马骤默！，：；？"
)
