import java.net.URL;
import java.security.cert.X509Certificate;
import javax.net.ssl.HttpsURLConnection;

/** PinnedNames.java URL SUBJECT: goes on only where the server's certificate has this subject, as clients do that pin names. */
public class PinnedNames {
  public static void main(String[] args) throws Exception {
    HttpsURLConnection connection = (HttpsURLConnection) new URL(args[0]).openConnection();
    connection.connect();
    X509Certificate shown = (X509Certificate) connection.getServerCertificates()[0];
    if (!shown.getSubjectX500Principal().getName().equals(args[1])) {
      System.out.println("refused: " + shown.getSubjectX500Principal());
      return;
    }
    System.out.println(connection.getResponseCode() + " " + shown.getSubjectAlternativeNames());
  }
}
