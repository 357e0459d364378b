//! The certificate by which an upstream knows us (mTLS).
//!
//! It is checked when it is read: that the key can be used and is the certificate's. Whether the other side
//! accepts it, only a handshake tells.

use std::fmt;
use std::sync::Arc;

use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Why a certificate and a key cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The text for the certificate holds none.
    #[error("no certificate found")]
    NoCertificate,
    /// It holds one that cannot be read.
    #[error("certificate: {0}")]
    Certificate(String),
    /// The text for the key holds none.
    #[error("no private key found")]
    NoKey,
    /// It holds one that cannot be used.
    #[error("private key: {0}")]
    Key(String),
    /// The key is another certificate's.
    #[error("the private key does not belong to the certificate")]
    OtherKey,
}

/// A certificate with its chain, and its private key. Prints neither.
#[derive(Clone)]
pub struct ClientIdentity(Arc<CertifiedKey>);

impl ClientIdentity {
    /// Reads both from PEM text: the certificate first and then its intermediate ones, and one key.
    ///
    /// # Errors
    ///
    /// If a text holds no certificate or no key, one that cannot be read, or a key of another certificate.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| IdentityError::Certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(IdentityError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::NoKey)?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| IdentityError::Key(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // Some keys do not tell: the handshake will.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Self(Arc::new(certified)))
            }
            Err(Error::InconsistentKeys(_)) => Err(IdentityError::OtherKey),
            Err(error) => Err(IdentityError::Certificate(error.to_string())),
        }
    }

    /// What a handshake takes it from.
    pub(crate) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.0)))
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["client".to_owned()]).expect("a name");
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_certificate_needs_its_own_key() {
        let ((certificate, key), (other, _)) = (made(), made());
        let identity = ClientIdentity::from_pem(certificate.as_bytes(), key.as_bytes());
        let shown = format!("{:?}", identity.expect("they belong together"));
        assert_eq!(shown, "ClientIdentity { .. }");
        for (certificate, key, expected) in [
            ("", key.as_str(), IdentityError::NoCertificate),
            (&certificate, "SECRET", IdentityError::NoKey),
            (&other, &key, IdentityError::OtherKey),
        ] {
            let told = ClientIdentity::from_pem(certificate.as_bytes(), key.as_bytes());
            assert_eq!(told.map(|_| ()), Err(expected));
        }
    }
}
