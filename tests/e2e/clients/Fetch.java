import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Fetch.java METHOD URL, or Fetch.java CONNECT host:port: java.net.http with no proxy setting. */
public class Fetch {
  public static void main(String[] args) {
    try {
      if (args[0].equals("CONNECT")) {
        String[] parts = args[1].split(":");
        try (Socket socket = new Socket()) {
          socket.connect(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])), 10000);
          System.out.println("connected");
        }
        return;
      }
      HttpClient client = HttpClient.newHttpClient();
      HttpRequest request = HttpRequest.newBuilder(URI.create(args[1])).method(args[0], HttpRequest.BodyPublishers.noBody()).build();
      HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
      System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
    } catch (Exception error) {
      Throwable cause = error;
      while (cause.getCause() != null) cause = cause.getCause();
      System.out.println("error " + error + " / " + cause);
    }
  }
}
