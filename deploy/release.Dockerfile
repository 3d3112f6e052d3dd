# The image of a release, over a program that `make dist` has built: deploy/image.sh. It contains the program, the
# certificates of public authorities, an SSH client with its libraries and the small shell with which that asks for pinned
# keys and passphrases, and nothing else: no package manager.
ARG DEBIAN=debian:bookworm-slim
FROM ${DEBIAN} AS files
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates openssh-client
COPY driftless /usr/local/bin/driftless
# The two programs with every library they load, and those that the C library loads for names of hosts and users.
RUN set -eu; mkdir -p /files/etc/ssl/certs /files/etc/driftless /files/run/driftless /files/var/lib/driftless; \
    mkdir -m 1777 /files/tmp; \
    cp /etc/ssl/certs/ca-certificates.crt /files/etc/ssl/certs/; \
    echo 'root:x:0:0:root:/root:/sbin/nologin' >/files/etc/passwd; \
    echo 'root:x:0:' >/files/etc/group; \
    echo 'hosts: files dns' >/files/etc/nsswitch.conf; \
    { ldd /usr/local/bin/driftless /usr/bin/ssh /usr/bin/ssh-keygen /bin/dash /bin/cat | grep -o '/[^ :]*' | grep '\.so'; \
      ls /lib/*-linux-gnu/libnss_files.so.2 /lib/*-linux-gnu/libnss_dns.so.2 /lib/*-linux-gnu/libresolv.so.2; } \
    | sort -u | while read -r file; do mkdir -p "/files${file%/*}"; cp -L "$file" "/files$file"; done; \
    mkdir -p /files/bin /files/usr/bin /files/usr/local/bin; \
    cp /usr/bin/ssh /usr/bin/ssh-keygen /files/usr/bin/; \
    cp /bin/dash /files/bin/sh; \
    cp /bin/cat /files/bin/cat; \
    cp /usr/local/bin/driftless /files/usr/local/bin/driftless

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Driftless" \
    org.opencontainers.image.description="A GitOps agent for Docker hosts" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=files /files /
# One allocator arena: without it, each thread keeps memory after it was busy, a quarter more with a thousand containers.
ENV MALLOC_ARENA_MAX=1 PATH=/usr/local/bin:/usr/bin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["/usr/local/bin/driftless", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/driftless"]
CMD ["run"]
