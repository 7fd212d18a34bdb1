"""Ask a running server with the OpenAI client: one picture, described without and with ReWEIGH.

reweigh serve &
python examples/ask_the_server.py
"""

import base64
import io
import sys

import openai

from reweigh import world

address = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8377"
client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")

data = io.BytesIO()
world.picture(129).save(data, "PNG")
url = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
content = [
    {"type": "image_url", "image_url": {"url": url}},
    {"type": "text", "text": "Please describe this image in detail."},
]

for switch in ("off", "on"):
    answer = client.chat.completions.create(
        model="world", messages=[{"role": "user", "content": content}], extra_body={"reweigh": switch}
    )
    print(f"{switch:3}", answer.choices[0].message.content)
