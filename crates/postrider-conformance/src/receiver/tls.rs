//! Certificates, good and bad.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

static AUTHORITIES: AtomicUsize = AtomicUsize::new(1);

/// A certificate authority of one test.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A fresh one.
    #[allow(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        let mut params = params(Vec::new());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two authorities of one name would look like one that signs badly.
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("Authority {number} of a test"));
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("an authority can sign itself");
        Self { issuer }
    }

    /// What to trust.
    pub fn root(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// What to trust, as a PEM file.
    pub fn root_pem(&self) -> String {
        self.issuer.pem()
    }

    /// A good certificate for `name`, a host name or an address.
    pub fn identity(&self, name: &str) -> Identity {
        self.sign(&params(vec![name.to_owned()]))
    }

    /// One that was good until the end of 2020.
    pub fn expired_identity(&self, name: &str) -> Identity {
        let mut params = params(vec![name.to_owned()]);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 12, 31);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).expect("an authority can sign");
        Identity::new(certificate.der().clone(), &key)
    }
}

/// A certificate with its key, and what a server with it offers.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    protocols: Vec<Vec<u8>>,
}

impl Identity {
    /// A certificate that nobody but itself vouches for.
    pub fn self_signed(name: &str) -> Self {
        let key = key();
        let certificate = params(vec![name.to_owned()]).self_signed(&key).expect("a certificate can sign itself");
        Self::new(certificate.der().clone(), &key)
    }

    fn new(certificate: CertificateDer<'static>, key: &KeyPair) -> Self {
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Self { certificate, key, protocols: vec![b"http/1.1".to_vec()] }
    }

    /// The same, for a server that offers HTTP/2 before HTTP/1.1.
    #[must_use]
    pub fn with_http2(mut self) -> Self {
        self.protocols.insert(0, b"h2".to_vec());
        self
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let key = PrivateKeyDer::Pkcs8(self.key.clone_key());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
            .expect("the key is the certificate's");
        config.alpn_protocols.clone_from(&self.protocols);
        TlsAcceptor::from(Arc::new(config))
    }
}

fn params(names: Vec<String>) -> CertificateParams {
    CertificateParams::new(names).expect("a test's names are valid")
}

fn key() -> KeyPair {
    KeyPair::generate().expect("keys can be made")
}
