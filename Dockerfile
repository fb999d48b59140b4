# The images of one project:
#
#   docker build -t hardmax .                            cpu: serves on any machine
#   docker build -t hardmax:gpu --target gpu .           gpu: serves on an NVIDIA GPU; CUDA and cuDNN are wheels
#   docker build -t hardmax:ray --target ray .           ray: the nodes of a Ray cluster (deploy/ray)
#   docker build -t hardmax:export --target export .     export: trains and exports models, with torch; not a service
#
# Packages are installed from locks with digests (`make lock`), and base images are pinned by digest. Our files are the
# last layer, some 90 MB, nearly all of it the encoders. pip, caches and sources stay in the building stages.

ARG PYTHON=3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM python:${PYTHON} AS base
ENV PATH=/opt/hardmax/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

# ---- the locked dependencies, in a virtual environment without pip

FROM base AS builder
WORKDIR /build
RUN python -m venv --without-pip /opt/hardmax
ENV INSTALL="pip --python /opt/hardmax/bin/python install --quiet --no-deps"

FROM builder AS cpu-dependencies
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --require-hashes -r requirements.lock

FROM builder AS gpu-dependencies
COPY docker/gpu.lock ./
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --require-hashes -r gpu.lock

FROM builder AS ray-dependencies
COPY docker/ray.lock ./
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --require-hashes -r ray.lock

FROM builder AS export-dependencies
COPY docker/export.lock ./
RUN --mount=type=cache,target=/root/.cache/pip $INSTALL --require-hashes -r export.lock

# ---- our own files, laid out as they will lie in /opt/hardmax

FROM builder AS everything
COPY docker/build.lock ./
RUN --mount=type=cache,target=/root/.cache/pip pip install --quiet --require-hashes -r build.lock
COPY pyproject.toml README.md LICENSE ./
COPY hardmax hardmax
COPY evaluation evaluation
COPY service service
COPY model_export model_export
RUN pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
    && $INSTALL --no-index --prefix /application /wheels/*.whl

FROM everything AS online
RUN rm -r /application/bin/hardmax-export /application/lib/python*/site-packages/model_export

# ---- what the images share: an account that owns no files, and the health check

FROM base AS runtime
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /tmp hardmax
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["hardmax"]
ARG VERSION=0.5.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hardmax" \
      org.opencontainers.image.description="Sentiment and text classification with exact, built-in explanations" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

FROM runtime AS server
ENV HARDMAX_HOST=0.0.0.0 \
    HARDMAX_LOG_FORMAT=json
COPY --link docker/health.py /opt/health.py
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --start-interval=1s --retries=3 \
    CMD ["python", "-I", "-S", "/opt/health.py"]
CMD ["serve"]

# ---- the images

FROM runtime AS export
COPY --link --from=export-dependencies /opt/hardmax /opt/hardmax
COPY --link --from=everything /application /opt/hardmax
ENTRYPOINT ["hardmax-export"]
CMD ["--help"]

FROM runtime AS ray
COPY --link --from=ray-dependencies /opt/hardmax /opt/hardmax
COPY --link --from=online /application /opt/hardmax
ENTRYPOINT []
CMD ["ray", "--help"]

FROM server AS gpu
ENV HARDMAX_PROVIDER=cuda
COPY --link --from=gpu-dependencies /opt/hardmax /opt/hardmax
COPY --link --from=online /application /opt/hardmax

FROM server AS cpu
COPY --link --from=cpu-dependencies /opt/hardmax /opt/hardmax
COPY --link --from=online /application /opt/hardmax
# The build fails if the image cannot classify a text and choose leaders.
RUN hardmax classify "A superb film." && printf '1,0\n0,1\n1,1\n' | hardmax control - --leaders 2
