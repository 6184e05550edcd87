//! Whom to trust, and why a session did not come about.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::TransportError;

/// One configuration for all connections: the system's certificate authorities (those that were compiled in, where the
/// system has none) and `extra`, HTTP/2 where the receiver offers it.
pub(super) fn client_config(extra: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, TransportError> {
    let mut roots = RootCertStore::empty();
    // A system's store may hold certificates that are not understood; the others still count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for (index, certificate) in extra.into_iter().enumerate() {
        roots
            .add(certificate)
            .map_err(|error| TransportError::Root { number: index + 1, reason: error.to_string() })?;
    }
    // The provider is named here because the process-wide default belongs to the application.
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TransportError::Tls { reason: error.to_string() })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates in a file's bytes: PEM, any number of them, or one in DER.
pub fn roots_from(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TransportError> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    if !bytes.windows(BEGIN.len()).any(|window| window == BEGIN) {
        return Ok(vec![CertificateDer::from(bytes.to_vec())]);
    }
    let mut certificates = Vec::new();
    for (index, certificate) in CertificateDer::pem_slice_iter(bytes).enumerate() {
        let certificate = certificate
            .map_err(|error: pem::Error| TransportError::Root { number: index + 1, reason: error.to_string() })?;
        certificates.push(certificate.into_owned());
    }
    if certificates.is_empty() {
        return Err(TransportError::Root { number: 1, reason: "the PEM file holds no certificate".to_owned() });
    }
    Ok(certificates)
}

/// Why a handshake failed, for people.
pub(super) fn describe(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => describe_session(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the connection closed during the TLS handshake".to_owned()
        }
        None if error.kind() == io::ErrorKind::ConnectionReset => {
            "the connection was reset during the TLS handshake".to_owned()
        }
        None => format!("the TLS handshake failed: {error}"),
    }
}

/// Why a session failed, for people.
pub(super) fn describe_session(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => describe_certificate(error),
        rustls::Error::InvalidMessage(_) => "the receiver does not speak TLS on this port".to_owned(),
        rustls::Error::AlertReceived(alert) => format!("the receiver refused the TLS session: {alert:?}"),
        rustls::Error::PeerIncompatible(_) => {
            "the receiver supports no TLS version or cipher that we accept".to_owned()
        }
        rustls::Error::NoCertificatesPresented => "the receiver presented no certificate".to_owned(),
        other => format!("the TLS session failed: {other}"),
    }
}

fn describe_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate not valid yet".to_owned()
        }
        CertificateError::NotValidForName => "certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, .. } => {
            let expected = match expected {
                ServerName::DnsName(name) => name.as_ref().to_owned(),
                ServerName::IpAddress(address) => std::net::IpAddr::from(*address).to_string(),
                _ => "the host".to_owned(),
            };
            format!("certificate is for another name, not for {expected}")
        }
        CertificateError::UnknownIssuer => "certificate is self-signed or its issuer is not trusted here".to_owned(),
        CertificateError::BadSignature => "certificate's signature is not its issuer's".to_owned(),
        CertificateError::Revoked => "certificate was revoked".to_owned(),
        other => format!("certificate not accepted: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pem_file_without_a_certificate_is_refused() {
        let key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let error = roots_from(key).expect_err("there is no certificate in it");
        assert!(error.to_string().contains("holds no certificate"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused_by_number() {
        let error = client_config(vec![CertificateDer::from(b"not a certificate".to_vec())]).expect_err("it is none");
        assert!(error.to_string().starts_with("cannot read certificate authority number 1"), "{error}");
    }
}
