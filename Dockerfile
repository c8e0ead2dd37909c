# docker build -t tuner .
# docker run --rm --gpus all --shm-size 8g -v "$PWD:/data" tuner run --trials 30
#
# --shm-size: workers hand over batches through /dev/shm, and the 64 MB it has otherwise are soon full.
# --gpus: leave it out to measure on the CPU. The database, tuner.db, is written to the mounted folder by user 1000;
# where that folder belongs to somebody else, add --user "$(id -u):$(id -g)".

# The torch wheel in constraints.txt is built for CUDA 13.0 and brings its own libraries, so the smallest runtime image
# will do. It must be 13.0 too: it then refuses, with a clear message, a driver too old for the wheel (below 580).
FROM nvidia/cuda:13.0.2-base-ubuntu24.04

RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

# torch first, in a layer of its own: it is most of the image and changes least.
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /opt/tuner && /opt/tuner/bin/pip install --no-cache-dir -c constraints.txt torch
COPY . ./
RUN /opt/tuner/bin/pip install --no-cache-dir -c constraints.txt .

# The image's own user 1000, which is also what the first user of most hosts is. HOME and USER hold for any --user.
RUN mkdir /data && chown ubuntu:ubuntu /data
USER ubuntu
ENV PATH=/opt/tuner/bin:$PATH HOME=/tmp USER=tuner
VOLUME /data
WORKDIR /data
ENTRYPOINT ["tuner"]
CMD ["--help"]
