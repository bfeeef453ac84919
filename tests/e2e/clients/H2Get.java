import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Each URL after another: version, status and the beginning of the body. */
public class H2Get {
  public static void main(String[] urls) throws Exception {
    HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).build();
    for (String url : urls) {
      HttpResponse<String> got =
          client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
      String body = got.body().replace('\n', ' ');
      System.out.println(got.version() + " " + got.statusCode() + " " + body.substring(0, Math.min(300, body.length())));
    }
  }
}
