//! The settings of TLS for servers that are trusted by certificates of the configuration.

use std::sync::Arc;

use rustls_platform_verifier::Verifier;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// The authorities that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those of the system, and the given certificates.
    WithSystem,
    /// The given certificates only.
    GivenOnly,
}

impl Trust {
    /// The settings of a client that trusts these certificates. An error is in words.
    pub fn client_config(self, certificates: Vec<CertificateDer<'static>>) -> Result<ClientConfig, String> {
        let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
        let verifier = self.verifier(certificates, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        let mut config =
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn verifier(
        self,
        certificates: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Trusted, String> {
        let authorities: Arc<dyn ServerCertVerifier> = match self {
            Self::WithSystem => Arc::new(
                Verifier::new_with_extra_roots(certificates.clone(), Arc::clone(provider))
                    .map_err(|error| error.to_string())?,
            ),
            Self::GivenOnly => {
                let mut roots = RootCertStore::empty();
                for certificate in &certificates {
                    roots.add(certificate.clone()).map_err(|error| error.to_string())?;
                }
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                    .build()
                    .map_err(|error| error.to_string())?
            }
        };
        Ok(Trusted { authorities, own: certificates })
    }
}

/// Trusts what the authorities trust, and the given certificates themselves.
#[derive(Debug)]
struct Trusted {
    authorities: Arc<dyn ServerCertVerifier>,
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
pub(crate) mod tests {
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    use super::*;

    /// A certificate for `reg.test` that signed itself and is marked as an authority, as `openssl req -x509` makes it.
    pub(crate) const SELF_SIGNED: &str = "-----BEGIN CERTIFICATE-----
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

    fn verify(
        trust: Trust,
        own: &[CertificateDer<'static>],
        server_name: &str,
        seconds: u64,
    ) -> Result<ServerCertVerified, Error> {
        let trusted = trust.verifier(own.to_vec(), &Arc::new(aws_lc_rs::default_provider())).unwrap();
        let presented = CertificateDer::from_pem_slice(SELF_SIGNED.as_bytes()).unwrap();
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        trusted.verify_server_cert(&presented, &[], &name, &[], now)
    }

    #[test]
    fn given_certificate_is_trusted_itself() {
        let own = [CertificateDer::from_pem_slice(SELF_SIGNED.as_bytes()).unwrap()];
        for trust in [Trust::WithSystem, Trust::GivenOnly] {
            assert!(verify(trust, &own, "reg.test", 1_900_000_000).is_ok());
            assert!(verify(trust, &own, "other.test", 1_900_000_000).is_err(), "it is another server's");
            assert!(verify(trust, &own, "reg.test", 1_000_000_000).is_err(), "it is not valid yet");
        }
        assert!(verify(Trust::WithSystem, &[], "reg.test", 1_900_000_000).is_err(), "it is not given");
    }
}
