# syntax=docker/dockerfile:1
# The image of the manifests, for those who build with a container engine: docker build --tag flock:dev .
FROM rust:1.95.0-alpine AS build
# ring brings its own assembly, but links with a C compiler.
RUN apk add --no-cache musl-dev
WORKDIR /src
COPY . .
# Alpine's target is musl, so the program is static and needs nothing of the image it runs in. A target directory of its
# own keeps whatever lies in the context's out of it.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build \
    cargo build --release --locked --package flock --bin flock --target-dir /build \
 && cp /build/release/flock /flock

# No shell, no libc, no package manager: nothing to patch but Flock, and nothing to find for who gets in.
FROM scratch
COPY --from=build /flock /flock
# A number, as runAsNonRoot cannot judge a name, and the user of the Deployment.
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["/flock"]
CMD ["serve"]
