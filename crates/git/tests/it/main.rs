//! Fetches from real Git repositories and servers: the `git` program, `git http-backend`, sshd, and every kind of damage.
//! Helpers may unwrap: `allow-unwrap-in-tests` only covers test functions themselves.

#![allow(clippy::unwrap_used, clippy::pedantic, clippy::type_complexity)]

// Ways to a server: host keys, passphrases, a GitHub App, proxies, certificates, rotation.
mod access;
mod causes;
// Damaged mirrors.
mod damage;
// Fetches, whole and broken.
mod fetch;
// Lock files in the mirror.
mod locks;
// The repositories and servers.
mod origin;
// Signatures by real programs against policies.
mod signed;
// Submodules: whole, nested, in circles, elsewhere.
mod submodules;
