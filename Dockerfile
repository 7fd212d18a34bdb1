# reweigh serve on a CPU. For a GPU, build it on the CUDA base:
#   docker build --build-arg BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04 -t reweigh .
ARG BASE=python:3.12-slim
# ARG BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04
FROM ${BASE}

# The CUDA base has no Python; the other one needs nothing here.
RUN command -v python3 > /dev/null || { apt-get update && apt-get install -y --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*; }

# An index of CPU-only torch wheels makes the image much smaller; give it as a build argument.
ARG PIP_EXTRA_INDEX_URL
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python3 -m venv /opt/reweigh && /opt/reweigh/bin/pip install --no-cache-dir -c constraints.txt ".[fast,serve]"

RUN useradd --system --create-home --home-dir /var/lib/reweigh reweigh && install -d -o reweigh /var/cache/reweigh
USER reweigh
WORKDIR /var/lib/reweigh
ENV HF_HOME=/var/cache/reweigh/hub
EXPOSE 8377
HEALTHCHECK --interval=30s --timeout=5s --start-period=300s CMD ["/opt/reweigh/bin/python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8377/health/live', timeout=4)"]
ENTRYPOINT ["/opt/reweigh/bin/reweigh", "serve", "--host", "0.0.0.0"]
CMD ["world"]
