//! The certificates that are trusted for a registry: those of the system's authorities, and those in its folder of
//! `/etc/docker/certs.d`. As for Docker, a certificate in that folder may be the registry's own, also one that signed itself.

use std::{fs, path::Path, sync::Arc};

use rustls_platform_verifier::Verifier;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

/// The largest file of certificates, in bytes.
const LARGEST: u64 = 4 << 20;

/// The settings of TLS for a registry that has these certificates in its folder. An error is in words.
pub(super) fn client_config(certificates: Vec<CertificateDer<'static>>) -> Result<ClientConfig, String> {
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    let authorities = Verifier::new_with_extra_roots(certificates.clone(), Arc::clone(&provider));
    let authorities = authorities.map_err(|error| error.to_string())?;
    let verifier = Trusted { authorities, own: certificates };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificates in a folder (`*.crt`). A file that cannot be read is as if it were not there.
pub(super) fn certificates(folder: &Path) -> Vec<CertificateDer<'static>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "crt"));
    let texts = files.filter(|path| fs::metadata(path).is_ok_and(|file| file.len() <= LARGEST));
    texts
        .filter_map(|path| fs::read(path).ok())
        .flat_map(|text| CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect::<Vec<_>>())
        .collect()
}

/// Trusts what the authorities trust, and the certificates of the folder themselves.
#[derive(Debug)]
struct Trusted {
    authorities: Verifier,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // A certificate that signed itself is often marked as an authority, and those are not accepted as a server's own.
        let is_marked = matches!(&verified, Err(Error::InvalidCertificate(CertificateError::Other(_))));
        if is_marked && self.own.iter().any(|own| own.as_ref() == end_entity.as_ref()) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate for `reg.test` that signed itself and is marked as an authority, as `openssl req -x509` makes it.
    const SELF_SIGNED: &str = "-----BEGIN CERTIFICATE-----
MIIBkjCCATigAwIBAgIUaao4Sam/hp0OIo/J16iV5IOHipswCgYIKoZIzj0EAwIw
EzERMA8GA1UEAwwIcmVnLnRlc3QwIBcNMjYxMTIzMTk1NzEzWhgPMjEyNjEwMzAx
OTU3MTNaMBMxETAPBgNVBAMMCHJlZy50ZXN0MFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEivlQrZ2HTusfKHLN6bM830AHUBn4/9tOUZonihsI/v01YvsrGfQLKP0H
v67Y06mcbPto+QdaDfXCEyMN15/7tqNoMGYwHQYDVR0OBBYEFMcZNDjbTUnpdrGK
pUcBOOUioo4YMB8GA1UdIwQYMBaAFMcZNDjbTUnpdrGKpUcBOOUioo4YMA8GA1Ud
EwEB/wQFMAMBAf8wEwYDVR0RBAwwCoIIcmVnLnRlc3QwCgYIKoZIzj0EAwIDSAAw
RQIhALracEr+tTIrnTViRsHXioS7808eHdpL+QbIJRReGOfmAiB6jpcI4g2suTWK
RcY+qm89d2OQtlGchwS62SG7+gUQeg==
-----END CERTIFICATE-----
";

    fn verify(own: &[CertificateDer<'static>], server_name: &str) -> Result<ServerCertVerified, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authorities = Verifier::new_with_extra_roots(own.to_vec(), provider).unwrap();
        let trusted = Trusted { authorities, own: own.to_vec() };
        let presented = CertificateDer::from_pem_slice(SELF_SIGNED.as_bytes()).unwrap();
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_900_000_000));
        trusted.verify_server_cert(&presented, &[], &name, &[], now)
    }

    #[test]
    fn certificate_of_the_folder_is_trusted_itself() {
        let own = [CertificateDer::from_pem_slice(SELF_SIGNED.as_bytes()).unwrap()];
        assert!(verify(&own, "reg.test").is_ok());
        assert!(verify(&own, "other.test").is_err(), "it is another server's");
        assert!(verify(&[], "reg.test").is_err(), "it is not in the folder");
    }

    #[test]
    fn certificates_are_read_from_files_with_their_ending() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(certificates(folder.path()).len(), 0);
        for (name, text) in [("ca.crt", SELF_SIGNED), ("client.key", SELF_SIGNED), ("broken.crt", "garbage")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(certificates(folder.path()).len(), 1);
        assert_eq!(certificates(Path::new("/no/such/folder")).len(), 0);
    }
}
