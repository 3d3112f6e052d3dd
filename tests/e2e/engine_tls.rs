//! An engine at `tcp://` that demands a client certificate: a TLS server in front of the real engine's socket.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, UnixStream},
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
};

use crate::harness::{Site, images};

/// The engine's socket behind TLS, for as long as it lives.
struct TlsFront {
    address: String,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// With the certificates of `folder`, whose authority every client needs.
    async fn start(folder: &Path) -> Self {
        let certificate = |name: &str| CertificateDer::from_pem_file(folder.join(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate("ca.pem")).unwrap();
        let clients = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.join("server-key.pem")).unwrap();
        let server = ServerConfig::builder().with_client_cert_verifier(clients);
        let server = server.with_single_cert(vec![certificate("server.pem")], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client without the right certificate gets no further.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let mut engine = UnixStream::connect("/var/run/docker.sock").await.unwrap();
                    // Either side may end at any moment.
                    let _ = copy_bidirectional(&mut client, &mut engine).await;
                });
            }
        });
        Self { address, task }
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes an authority, a certificate of 127.0.0.1 and one of a client, named as the Docker CLI has them.
fn certificates(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let openssl = |line: &str| {
        let mut command = Command::new("openssl");
        let output = command.args(shell_words::split(line).unwrap()).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority -keyout ca-key.pem -out ca.pem",
    );
    for (name, key, more) in [
        ("server", "server-key", "subjectAltName=IP:127.0.0.1"),
        ("cert", "key", "extendedKeyUsage=clientAuth"),
    ] {
        fs::write(folder.join("more"), more).unwrap();
        openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {key}.pem -out {name}.csr"
        ));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile more -out {name}.pem"
        ));
    }
    folder.to_owned()
}

#[tokio::test]
async fn engine_is_reached_with_a_client_certificate() {
    let mut site = Site::new("tls");
    let folder = certificates(&site.directory().join("certificates"));
    let front = TlsFront::start(&folder).await;
    let file = |name: &str| folder.join(name);
    let tls = json!({"ca": file("ca.pem"), "cert": file("cert.pem"), "key": file("key.pem")});
    site.settings.whole = Some(json!({"docker": {"host": front.address, "tls": tls}}));
    // A build switches the connection to another protocol.
    site.repository.commit(&[(
        &site.path("Dockerfile"),
        &format!("FROM {}\nENV GREETING=encrypted\n", images::server("1.0")),
    )]);
    let agent = site.running("services:\n  web:\n    build: .\n    stop_grace_period: 1s\n").await;
    let id = site.container("web").id();
    site.docker.run(&["rm", "-f", &id]);
    site.until("the event arrives and it is back", |_| {
        site.of("web").iter().find(|it| it.id() != id).map(drop)
    })
    .await;
    assert!(!agent.log().contains("not encrypted"), "{}", agent.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_the_environment_are_used_and_needed() {
    let site = Site::new("tls-plan");
    let folder = certificates(&site.directory().join("certificates"));
    let others = certificates(&site.directory().join("others"));
    let front = TlsFront::start(&folder).await;
    let manifests = site.directory().join("manifests");
    fs::create_dir_all(&manifests).unwrap();
    let compose = format!("services:\n  web:\n    image: {}\n", images::placeholder());
    fs::write(manifests.join("compose.yaml"), compose).unwrap();
    let plan = |certificates: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command.args(["plan", "--dir"]).arg(&manifests);
        command.env("DOCKER_HOST", &front.address).env("DOCKER_TLS_VERIFY", "1");
        let output = command.env("DOCKER_CERT_PATH", certificates).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let blocking = |certificates: &Path| tokio::task::block_in_place(|| plan(certificates));
    let (code, out, error) = blocking(&folder);
    assert!(code == Some(0) && out.contains("create"), "{code:?} {out}{error}");

    // The engine's certificate is from another authority.
    let (code, out, error) = blocking(&others);
    assert!(
        code == Some(2) && error.contains("no encrypted connection to 127.0.0.1:"),
        "{code:?} {out}{error}"
    );

    // The agent is no client that the engine knows.
    for name in ["cert.pem", "key.pem"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let (code, out, error) = blocking(&folder);
    assert!(code == Some(2) && error.contains("CertificateRequired"), "{code:?} {out}{error}");

    fs::remove_file(folder.join("ca.pem")).unwrap();
    let (code, out, error) = blocking(&folder);
    assert!(code == Some(2) && error.contains("ca.pem"), "{code:?} {out}{error}");
}
