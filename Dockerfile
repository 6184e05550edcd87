# Postrider as an image: one static binary, the certificate authorities, and nothing else. There is no shell in it.
#
#   docker build -t postrider .
#   docker run -p 8400:8400 -v postrider:/var/lib/postrider postrider

# Not older than `rust-version` in Cargo.toml.
ARG RUST_VERSION=1.94

# On Alpine, Rust links against musl, and statically.
FROM docker.io/library/rust:${RUST_VERSION}-alpine AS build
# SQLite, the allocator and the cryptography are compiled from C and assembler.
# hadolint ignore=DL3018
RUN apk add --no-cache build-base ca-certificates-bundle
WORKDIR /src
# The whole workspace, which .dockerignore says: most of its members are not compiled, and Cargo wants to see all of them.
COPY . .
# Run in the folder that becomes the image, it would fail if it needed anything that is not there.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package postrider-cli \
    && mkdir -p /image/var/lib/postrider /image/etc/ssl/certs \
    && cp target/release/postrider /image/postrider \
    && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt \
    && chroot /image /postrider --version

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Postrider" \
      org.opencontainers.image.description="Delivers webhooks, from Postgres or SQLite" \
      org.opencontainers.image.source="https://github.com/postrider/postrider" \
      org.opencontainers.image.documentation="https://github.com/postrider/postrider/blob/main/docs/packages.md" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Before the volume is declared: it takes over the owner of the folder.
COPY --from=build --chown=65532:65532 /image/var/lib/postrider /var/lib/postrider
COPY --from=build /image/etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /image/postrider /postrider
COPY LICENSE-MIT LICENSE-APACHE /licenses/
ENV POSTRIDER_DATABASE=sqlite:///var/lib/postrider/postrider.db \
    POSTRIDER_LISTEN=0.0.0.0:8400 \
    POSTRIDER_LOG_FORMAT=json
# A postrider.toml is read from here, and SQLite's temporary files go here.
WORKDIR /var/lib/postrider
VOLUME /var/lib/postrider
USER 65532:65532
EXPOSE 8400
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/postrider", "doctor", "--ready"]
ENTRYPOINT ["/postrider"]
CMD ["serve"]
